// Checkpoints that refer to older ones, over many saves, failures, starts and grids.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "ckpt/catalog.h"
#include "ckpt/commands.h"
#include "ckpt/file_names.h"
#include "comm/thread_world.h"
#include "tests/crash/memory_fs.h"
#include "tests/crash/rotating_rank.h"
#include "tests/threads/one_rank_fs.h"

namespace fourfold {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kDir = "run/checkpoints";
const std::vector<GridShape> kGrids = {GridShape(1, 1, 1, 1), GridShape(2, 1, 1, 1),
                                       GridShape(1, 1, 2, 1), GridShape(1, 2, 1, 2),
                                       GridShape(1, 1, 1, 3)};

/// What a checkpoint must hold.
struct Expected {
  int step = 0;
  Versions versions;
};

/// A folder in which each file is one that a checkpoint needs, and each checkpoint is what was
/// saved, loaded on some grid.
void check_folder(MemoryFs& fs, const std::map<CheckpointId, Expected>& model, std::mt19937& random,
                  const std::string& where) {
  const Catalog catalog = read_catalog(fs, kDir);
  std::set<std::string> needed = {"CURRENT", "RUN_ID"};
  for (const CheckpointId& id : catalog.complete) {
    ASSERT_TRUE(model.contains(id)) << where << id.folder();
    const GridShape grid = kGrids[random() % kGrids.size()];
    ASSERT_EQ(on_rotating_ranks(fs, kDir, grid, {},
                                [&](RotatingRank& rank) {
                                  const Expected& e = model.at(id);
                                  return rank.loaded_difference(id.folder(), e.step, e.versions);
                                }),
              "")
        << where << id.folder();
    const Manifest manifest = read_manifest(fs, join_path(kDir, id.folder())).value();
    needed.insert(id.folder() + "/" + kManifestName);
    for (const FileRecord& f : manifest.files) needed.insert(id.folder() + "/" + f.name);
    for (const ReferredCheckpoint& r : manifest.referred) {
      for (const FileRecord& f : r.files) needed.insert(r.id.folder() + "/" + f.name);
    }
  }
  for (const std::string& path : fs.files()) {
    const std::string name = path.substr(std::string(kDir).size() + 1);
    if (name.starts_with(kAbandonedPrefix)) continue;
    EXPECT_EQ(needed.count(name), 1u) << where << name << " is needed by nothing";
  }
  if (!catalog.has_history()) return;
  EXPECT_THAT(checkpoint_verify(fs, "run").value().problems, IsEmpty()) << where;
}

/// Makes each start, save and failure of a run by chance, and keeps the book of what must be there.
class RandomRun {
 public:
  explicit RandomRun(unsigned seed) : random_(seed) {}

  /// A start of the run on some grid, its load and some saves.
  void session(const std::string& where) {
    const GridShape grid = kGrids[random_() % kGrids.size()];
    EngineOptions options;
    options.async = random_() % 2 == 0;
    options.save.retention = {static_cast<int>(1 + random_() % 3), random_() % 2 ? 0 : 4};
    std::vector<Save> saves(1 + random_() % 5);
    for (Save& save : saves) {
      save = {random_() % 4 == 0 ? kAllTaken : static_cast<Taken>(random_() & kAllTaken),
              random_() % 4 == 0};
    }
    std::vector<std::string> wrong(static_cast<std::size_t>(grid.size()));
    std::vector<Book> books(wrong.size(), book_);
    run_thread_ranks(grid.size(), {}, [&](Communicator& world) {
      OneRankFs mine(fs_, world.rank() == world.size() - 1);
      RotatingRank rank(world, mine, kDir, grid, options);
      const auto i = static_cast<std::size_t>(world.rank());
      wrong[i] = run(rank, mine, saves, books[i]);
    });
    ASSERT_THAT(wrong, testing::Each(IsEmpty())) << where;
    book_ = books[0];
    check_folder(fs_, book_.there, random_, where);
    remainders += static_cast<int>(read_catalog(fs_, kDir).incomplete.size());
  }

  /// Damages the newest checkpoint, if there is another.
  void damage() {
    const Catalog catalog = read_catalog(fs_, kDir);
    if (catalog.complete.size() < 2) return;
    const std::string file = join_path(kDir, catalog.complete.back().folder()) + "/" +
                             (random_() % 2 ? dense_file_name(0) : std::string(kManifestName));
    fs_.flip(file, fs_.content(file).size() / 2);
    ++fallbacks;
  }

  int fallbacks = 0;
  int remainders = 0;  ///< Folders that others refer to and that are no checkpoints.

 private:
  struct Save {
    Taken taken = 0;
    bool fails = false;
  };
  struct Book {
    std::map<CheckpointId, Expected> there;
    std::set<CheckpointId> used;
    int step = 0;
  };

  static std::string run(RotatingRank& rank, OneRankFs& fs, const std::vector<Save>& saves,
                         Book& book) {
    if (const auto seen = rank.store().check_shared_folder(rank.world()); !seen) {
      return seen.error().what();
    }
    if (const std::string failed = rank.start(); !failed.empty()) return failed;
    std::optional<Expected> now;
    if (rank.loaded()) {
      const CheckpointId id = rank.loaded()->id;
      now = book.there.at(id);
      book.step = now->step;
      const std::string wrong = rank.difference(now->step, now->versions);
      if (!wrong.empty()) return "loaded " + id.folder() + ": " + wrong;
      std::erase_if(book.there, [&](const auto& entry) { return entry.first > id; });
    }
    for (const auto& [taken, fails] : saves) {
      ++book.step;
      fs.refuse_to_create = fails ? "rank-" : "";
      const std::string failed = rank.save(book.step, taken);
      const bool can = !fails && (now || taken == kAllTaken);
      if (failed.empty() != can) return "save: " + failed;
      if (!can) continue;
      now = Expected{book.step, versions_after(now ? now->versions : Versions(), book.step, taken)};
      const CheckpointId id = rank.engine().newest()->id;
      if (!book.used.insert(id).second) return id.folder() + " is used twice";
      book.there[id] = *now;
    }
    return "";
  }

  MemoryFs fs_;
  std::mt19937 random_;
  Book book_;
};

TEST(Rotation, EveryCheckpointIsTheStateThatItsVersionsMakeUp) {
  int fallbacks = 0, remainders = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    RandomRun run(seed);
    for (int session = 1; session <= 6; ++session) {
      run.session(fmt::format("seed {}, session {}: ", seed, session));
      if (HasFatalFailure()) return;
      if ((seed + static_cast<unsigned>(session)) % 3 == 0) run.damage();
    }
    fallbacks += run.fallbacks;
    remainders += run.remainders;
  }
  EXPECT_GT(fallbacks, 10);
  EXPECT_GT(remainders, 20);
}

/// Two saves on their way: the second refers to what the first made of it.
TEST(Rotation, AWaitingSaveRefersToWhatIsCommittedWhenItIsWritten) {
  for (const bool first_fails : {false, true}) {
    MemoryFs fs;
    const GridShape grid(1, 1, 2, 1);
    run_thread_ranks(2, {}, [&](Communicator& world) {
      OneRankFs mine(fs, world.rank() == 1);
      RotatingRank rank(world, mine, kDir, grid);
      EXPECT_EQ(rank.start(), "");
      EXPECT_EQ(rank.save(1, kAllTaken), "");
      const Versions full = versions_after({}, 1, kAllTaken);
      mine.stands_still = true;
      mine.refuse_to_create = first_fails ? "step-00000002" : "";
      if (first_fails) mine.stands_still = false;
      rank.begin_save(2, 0b000011);
      rank.begin_save(3, 0b000110);
      mine.release();
      rank.engine().drain();
      std::vector<std::string> errors;
      for (const EngineReport& r : rank.engine().take_reports()) {
        errors.push_back(r.save.error ? r.save.error->what() : "");
      }
      EXPECT_EQ(errors.size(), 2u);
      EXPECT_EQ(errors.at(0).empty(), !first_fails);
      EXPECT_EQ(errors.at(1), "");
      const Versions second = first_fails ? full : versions_after(full, 2, 0b000011);
      EXPECT_EQ(rank.loaded_difference("step-00000003", 3, versions_after(second, 3, 0b000110)),
                "");
    });
  }
}

TEST(Rotation, TheFirstSaveMustBeFull) {
  for (const bool async : {true, false}) {
    MemoryFs fs;
    EXPECT_EQ(on_rotating_ranks(fs, kDir, GridShape(2, 1, 1, 1), {.async = async},
                                [&](RotatingRank& rank) {
                                  EXPECT_EQ(rank.start(), "");
                                  EXPECT_THAT(rank.save(1, kAllTaken & ~1u),
                                              HasSubstr("no committed checkpoint has experts.0@"));
                                  EXPECT_EQ(rank.engine().newest(), nullptr);
                                  EXPECT_EQ(rank.save(2, kAllTaken), "");
                                  return rank.save(3, 0);
                                }),
              "");
    EXPECT_THAT(fs.list(kDir), ElementsAre("CURRENT", "step-00000002", "step-00000003"));
  }
}

/// Without a selection nothing is referred to; without rotation the format is the first version.
TEST(Rotation, AStateInWhichNothingRotatesIsSavedAsEver) {
  MemoryFs fs;
  on_rotating_ranks(fs, kDir, GridShape(2, 1, 1, 1), {}, [&](RotatingRank& rank) {
    for (StateTensor& t : rank.state().tensors()) t.rotates = false;
    EXPECT_EQ(rank.start(), "");
    EXPECT_EQ(rank.save(1, 0), "");
    return std::string();
  });
  EXPECT_THAT(fs.list("run/checkpoints/step-00000001"),
              ElementsAre("config.toml", "manifest.json", dense_file_name(0), dense_file_name(1)));
  EXPECT_THAT(fs.content("run/checkpoints/step-00000001/manifest.json"),
              AllOf(HasSubstr("\"version\":1,"), testing::Not(HasSubstr("referred"))));
  // What lies in dense files cannot be referred to: the next save must be full.
  on_rotating_ranks(fs, kDir, GridShape(1, 1, 1, 1), {}, [&](RotatingRank& rank) {
    EXPECT_EQ(rank.start(), "");
    EXPECT_THAT(rank.save(2, 0b1), HasSubstr("no committed checkpoint has"));
    EXPECT_EQ(rank.save(3, kAllTaken), "");
    EXPECT_EQ(rank.save(4, 0b1), "");
    return std::string();
  });
}

TEST(Rotation, RanksMustSelectTheSame) {
  for (const bool async : {true, false}) {
    MemoryFs fs;
    run_thread_ranks(3, {}, [&](Communicator& world) {
      RotatingRank rank(world, fs, kDir, GridShape(1, 1, 1, 3), {.async = async});
      EXPECT_EQ(rank.start(), "");
      const auto cause = [&](const SaveSelection& selection) -> std::string {
        try {
          rank.engine().save(test_meta(1, GridShape(1, 1, 1, 3), 1), selection);
          return "";
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::kInternal);
          return error.what();
        }
      };
      const Taken mine = world.rank() == 2 ? 0b1 : 0b11;
      EXPECT_EQ(cause(rank.selection(mine)), "rank 2 selects other tensors to save than rank 0");
      EXPECT_THAT(cause(world.rank() == 1 ? SaveSelection(3) : SaveSelection()),
                  HasSubstr("rank 1 selects from a list of other than"));
      EXPECT_EQ(cause({}), "");
      rank.engine().drain();
    });
  }
}

TEST(Rotation, RanksMustAgreeOnWhatRotates) {
  run_thread_ranks(2, {}, [&](Communicator& world) {
    TestState state(GridShape(1, 1, 1, 2), world.rank(), /*zero=*/true, /*large=*/false);
    state.add_experts(kRotatingExperts);
    state.tensors().back().rotates = world.rank() == 0;
    EXPECT_THAT(agree_on_save(world, state.tensors()).error().what(),
                HasSubstr("rank 1 saves other tensors than rank 0"));
  });
}

TEST(Rotation, OnlyExpertsRotate) {
  const auto world = make_solo();
  TestState state(GridShape(), 0, /*zero=*/false, /*large=*/false);
  state.tensors()[0].rotates = true;
  EXPECT_THAT(agree_on_save(*world, state.tensors()).error().what(), HasSubstr("no expert's"));
}

/// A rank opens the files of those who wrote what it wants, of each checkpoint that it lies in.
TEST(Rotation, ALoadOpensOnlyWhatItNeeds) {
  MemoryFs fs;
  const GridShape grid(1, 1, 1, 3);  // An expert on each rank: rank r writes expert r alone.
  on_rotating_ranks(fs, kDir, grid, {}, [&](RotatingRank& rank) {
    EXPECT_EQ(rank.start(), "");
    EXPECT_EQ(rank.save(1, kAllTaken), "");
    EXPECT_EQ(rank.save(2, 0b110000), "");
    return rank.save(3, 0b001100);
  });
  EXPECT_THAT(fs.list("run/checkpoints/step-00000003"),
              ElementsAre("config.toml", "manifest.json", dense_file_name(0), dense_file_name(1),
                          expert_file_name(1), dense_file_name(2)))
      << "a rank that writes nothing that rotates has no such file";
  const auto opened = [&] {
    std::vector<int> counts(3);
    run_thread_ranks(3, {}, [&](Communicator& world) {
      OneRankFs mine(fs, false);
      TestState state(grid, world.rank(), /*zero=*/true, /*large=*/false);
      state.add_experts(kRotatingExperts);
      std::erase_if(state.tensors(), [](const StateTensor& t) { return !t.rotates; });
      EXPECT_TRUE(CheckpointStore(mine, kDir).load(world, "", state.tensors()));
      counts[static_cast<std::size_t>(world.rank())] = mine.shards_opened;
    });
    return counts;
  };
  EXPECT_THAT(opened(), ElementsAre(1, 1, 1));
  // The older one was written on another grid than the newest.
  on_rotating_ranks(fs, kDir, grid, {}, [&](RotatingRank& rank) {
    EXPECT_EQ(rank.start(), "");
    return rank.save(4, kAllTaken);
  });
  on_rotating_ranks(fs, kDir, GridShape(), {}, [&](RotatingRank& rank) {
    EXPECT_EQ(rank.start(), "");
    return rank.save(5, 0b000001);
  });
  EXPECT_THAT(opened(), ElementsAre(2, 1, 1)) << "the first rank's tensors are of two versions";
}

}  // namespace
}  // namespace fourfold
