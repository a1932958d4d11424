#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "ckpt/catalog.h"
#include "ckpt/engine.h"
#include "ckpt/file_names.h"
#include "ckpt/surviving_copies.h"
#include "comm/thread_world.h"
#include "tests/crash/memory_fs.h"
#include "tests/crash/state_fixture.h"
#include "tests/threads/one_rank_fs.h"

namespace fourfold {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kDir = "run/checkpoints";
const GridShape kGrid(1, 3, 1, 1);
constexpr Retention kThree{.keep_latest = 3};

/// One rank of a run that trains (changes its state) and takes checkpoints.
struct Rank {
  Rank(Communicator& communicator, Fs& fs, const std::string& dir = kDir, EngineOptions given = {})
      : world(communicator),
        store(fs, dir),
        state(GridShape(1, communicator.size(), 1, 1), communicator.rank(), /*zero=*/false),
        options(std::move(given)) {
    options.save.retention = kThree;
    engine.emplace(world, store, state.tensors(), options,
                   Log([this](LogLevel, std::string_view line) { lines.emplace_back(line); }));
  }

  /// A checkpoint of a step, whose state is changed as soon as that is allowed.
  void save(int step) {
    state.fill(step);
    engine->save(test_meta(step, GridShape(1, world.size(), 1, 1)));
    engine->before_update();
    state.clear();
  }
  /// The steps of what was committed since; an error stands as its text.
  std::vector<std::string> reports() {
    std::vector<std::string> texts;
    for (const EngineReport& r : engine->take_reports()) {
      texts.push_back(r.save.error ? r.save.error->what() : std::to_string(r.save.id.step.value));
    }
    return texts;
  }
  /// What a load of a step's checkpoint gets wrong; "" for nothing.
  std::string loaded(int step) {
    state.clear();
    const auto found = store.load(world, CheckpointId{Step(step), 0}.folder(), state.tensors());
    return found ? state.difference(step) : found.error().what();
  }

  Communicator& world;
  CheckpointStore store;
  TestState state;
  EngineOptions options;
  std::vector<std::string> lines;
  std::optional<CheckpointEngine> engine;
};

TEST(EngineIsolation, WhatIsSavedIsTheStateOfItsStep) {
  for (const bool async : {true, false}) {
    MemoryFs fs;
    run_thread_ranks(3, {}, [&](Communicator& world) {
      Rank rank(world, fs, kDir, {.async = async});
      for (const int step : {1, 2, 3}) {
        rank.save(step);
        rank.engine->drain();
      }
      EXPECT_THAT(rank.reports(), ElementsAre("1", "2", "3"));
      for (const int step : {1, 2, 3}) EXPECT_EQ(rank.loaded(step), "");
    });
  }
}

TEST(EngineSlowDisk, TrainingGoesOnUntilTwoCheckpointsAreOnTheirWay) {
  MemoryFs fs;
  run_thread_ranks(3, {}, [&](Communicator& world) {
    OneRankFs mine(fs, world.rank() == 1);
    mine.stands_still = true;
    Rank rank(world, mine);
    for (const int step : {1, 2}) {
      rank.save(step);
      for (int i = 0; i < 5; ++i) rank.engine->boundary();
    }
    EXPECT_THAT(rank.reports(), IsEmpty());
    EXPECT_FALSE(fs.exists(std::string(kDir) + "/CURRENT")) << "the pointer moves last";
    EXPECT_LT(rank.engine->take_held_seconds(), 5);
    // The third waits until the disk has taken the first.
    std::thread disk([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      mine.release();
    });
    rank.save(3);
    EXPECT_THAT(rank.reports(), ElementsAre("1"));
    disk.join();
    rank.engine->drain();
    EXPECT_THAT(rank.reports(), ElementsAre("2", "3"));
    for (const int step : {1, 2, 3}) EXPECT_EQ(rank.loaded(step), "");
  });
}

TEST(EngineErrors, OneRanksFailureIsHeardByAllAndTheNextSaveWorks) {
  for (const bool async : {true, false}) {
    MemoryFs fs;
    run_thread_ranks(3, {}, [&](Communicator& world) {
      OneRankFs mine(fs, world.rank() == 2);
      Rank rank(world, mine, kDir, {.async = async});
      rank.save(1);
      rank.engine->drain();
      EXPECT_THAT(rank.reports(), ElementsAre("1"));
      mine.refuse_to_create = "rank-00002";
      rank.save(2);
      std::vector<std::string> heard;
      for (; heard.empty(); heard = rank.reports()) rank.engine->boundary();
      EXPECT_THAT(heard, ElementsAre(AllOf(HasSubstr("rank 2 ("), HasSubstr("free 5 B"))));
      mine.refuse_to_create.clear();
      rank.save(3);
      rank.engine->drain();
      EXPECT_THAT(rank.reports(), ElementsAre("3"));
      EXPECT_EQ(rank.loaded(3), "");
      EXPECT_EQ(rank.loaded(1), "");
    });
    EXPECT_THAT(fs.list(kDir), ElementsAre("CURRENT", "step-00000001", "step-00000003"));
  }
}

TEST(EngineErrors, ADiskThatDoesNotAnswerIsAnErrorThatNamesItsRank) {
  MemoryFs fs;
  run_thread_ranks(3, {}, [&](Communicator& world) {
    OneRankFs mine(fs, world.rank() == 1);
    mine.stands_still = true;
    Rank rank(world, mine, kDir, {.save = {.timeout_seconds = 0.2}});
    rank.save(1);
    std::string cause;
    try {
      rank.engine->drain();
    } catch (const Error& error) {
      cause = error.what();
    }
    EXPECT_THAT(cause, HasSubstr("step 1 is given up: rank 1 has not ended"));
    EXPECT_EQ(rank.engine->ends_within(std::chrono::milliseconds(1)), world.rank() != 1);
    world.barrier().wait_host();
    mine.release();
    EXPECT_TRUE(rank.engine->ends_within(std::chrono::seconds(20)));
  });
}

TEST(EngineErrors, ListsThatDoNotFitAreRefusedAtTheStart) {
  MemoryFs fs;
  run_thread_ranks(2, {}, [&](Communicator& world) {
    CheckpointStore store(fs, kDir);
    TestState state(GridShape(1, 2, 1, 1), world.rank(), false);
    if (world.rank() == 1) state.tensors().pop_back();
    try {
      CheckpointEngine engine(world, store, state.tensors(), {}, {});
      FAIL() << "taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("saves other tensors"));
    }
  });
}

class EngineOnDisk : public testing::Test {
 protected:
  EngineOnDisk() {
    char name[] = "/tmp/fourfold-engine-XXXXXX";
    root_ = ::mkdtemp(name);
    memory_ = root_ + "/memory";
    std::filesystem::create_directory(memory_);
  }
  ~EngineOnDisk() override { std::filesystem::remove_all(root_); }

  std::vector<std::string> copies() const {
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(memory_)) {
      if (entry.path().extension() == ".safetensors") paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  std::string root_, memory_;
  PosixFs fs_;
};

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(EngineOnDisk, TheCopyIsTheFileAndOutlivesTheEngine) {
  const std::string dir = root_ + "/run/checkpoints";
  run_thread_ranks(2, {}, [&](Communicator& world) {
    Rank rank(world, fs_, dir, {.memory_dir = memory_});
    rank.save(7);
    rank.engine->drain();
    EXPECT_THAT(rank.reports(), ElementsAre("7"));
  });
  const auto paths = copies();
  ASSERT_EQ(paths.size(), 2u);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string file = bytes_of(join_path(dir, "step-00000007/" + dense_file_name(rank)));
    std::string copy = bytes_of(paths[static_cast<std::size_t>(rank)]);
    ASSERT_GE(copy.size(), file.size());
    EXPECT_EQ(copy.substr(0, file.size()), file) << "but for the end of the last page";
    EXPECT_LT(copy.size() - file.size(), kDirectAlignment);
  }
  run_thread_ranks(2, {}, [&](Communicator& world) {
    Rank rank(world, fs_, dir, {.memory_dir = memory_});
    rank.engine->forget_copies();
  });
  EXPECT_TRUE(std::filesystem::is_empty(memory_));
}

TEST_F(EngineOnDisk, WithoutAFolderForCopiesOwnMemoryServes) {
  // Somebody else's folder in the place of ours: here, one that others can read.
  const std::string dir = root_ + "/run/checkpoints";
  const std::string taken = private_copies_folder(memory_, "", dir);
  ASSERT_EQ(::chmod(taken.c_str(), 0755), 0);
  for (const std::string& memory : {memory_, root_ + "/none", std::string()}) {
    const auto world = make_solo();
    Rank rank(*world, fs_, dir, {.memory_dir = memory});
    rank.save(1);
    rank.engine->drain();
    EXPECT_THAT(rank.reports(), ElementsAre("1"));
    EXPECT_EQ(rank.loaded(1), "");
    EXPECT_EQ(rank.lines.size(), memory.empty() ? 0u : 1u);
    std::filesystem::remove_all(dir);
  }
  EXPECT_THAT(copies(), IsEmpty());
}

/// A run that is killed while its disk stands still, with step 10 on it and step 20 copied.
class EngineKilled : public EngineOnDisk {
 protected:
  EngineKilled() {
    run_thread_ranks(2, {}, [&](Communicator& world) {
      OneRankFs mine(fs_, world.rank() == 1);
      Rank rank(world, mine, dir_, {.memory_dir = memory_});
      rank.save(10);
      rank.engine->drain();
      mine.stands_still = true;
      rank.save(20);
      world.barrier().wait_host();
      // What a kill at this moment would leave in memory.
      if (world.rank() == 0) std::filesystem::copy(folder(), root_ + "/kept");
      world.barrier().wait_host();
      mine.release();
    });
    std::filesystem::remove_all(dir_ + "/step-00000020");
    std::filesystem::remove_all(folder());
    std::filesystem::create_directory(folder());
    std::filesystem::copy(root_ + "/kept", folder());
  }

  std::string folder() const { return private_copies_folder(memory_, "", dir_); }

  /// What the next start writes; "" for nothing, or its error.
  std::string next_start(GridShape grid = GridShape(1, 2, 1, 1), bool full = false) {
    std::string said;
    run_thread_ranks(grid.size(), {}, [&](Communicator& world) {
      OneRankFs mine(fs_, full && world.rank() == 1);
      mine.refuse_to_create = "rank-00001";
      CheckpointStore store(mine, dir_, Log([&](LogLevel, std::string_view line) {
                              if (world.rank() == 0) lines_.emplace_back(line);
                            }));
      const auto written = write_surviving_copies(world, store, fs_, folder(), test_meta(0, grid));
      if (world.rank() != 0) return;
      if (!written) {
        said = written.error().what();
      } else if (written.value()) {
        said = written.value()->folder();
      }
    });
    return said;
  }

  std::string dir_ = root_ + "/run/checkpoints";
  std::vector<std::string> lines_;
};

TEST_F(EngineKilled, WhatWasOnlyInMemoryIsWrittenByTheNextStart) {
  EXPECT_EQ(next_start(), "step-00000020");
  EXPECT_EQ(next_start(), "") << "it is on the disk";
  run_thread_ranks(2, {}, [&](Communicator& world) {
    CheckpointStore store(fs_, dir_);
    TestState state(GridShape(1, 2, 1, 1), world.rank(), false);
    auto loaded = store.load_latest(world, state.tensors()).value();
    EXPECT_EQ(loaded->id.step, Step(20));
    EXPECT_EQ(state.difference(20), "");
    EXPECT_EQ(loaded->meta.config_toml, test_meta(20).config_toml);
    EXPECT_NE(loaded->meta.session, "");
    EXPECT_EQ(loaded->meta.scalars, test_meta(20).scalars);
  });
}

TEST_F(EngineKilled, ACommitThatStoppedBeforeCurrentIsMadeAnewFromTheCopies) {
  EXPECT_EQ(next_start(), "step-00000020");
  set_current(fs_, dir_, {Step(10), 0});
  EXPECT_EQ(next_start(), "step-00000020.1");
  EXPECT_EQ(read_catalog(fs_, dir_).current, (CheckpointId{Step(20), 1}));
}

TEST_F(EngineKilled, AnotherGridHasNoUseForTheCopies) {
  EXPECT_EQ(next_start(GridShape(2, 1, 1, 1)), "");
  EXPECT_EQ(next_start(GridShape(1, 1, 1, 1)), "");
}

TEST_F(EngineKilled, ADamagedCopyIsPassedOver) {
  std::fstream damaged(copies().back(), std::ios::in | std::ios::out | std::ios::binary);
  damaged.seekp(kDirectAlignment + 10);
  damaged.put('!');
  damaged.close();
  EXPECT_EQ(next_start(), "");
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("rank 1 ("), HasSubstr("checksum is wrong"))));
  // One that ends too early, and a note that is none.
  std::filesystem::resize_file(copies().back(), 5000);
  EXPECT_EQ(next_start(), "");
  for (const std::string& copy : copies()) std::ofstream(copy + ".json") << "{";
  EXPECT_EQ(next_start(), "");
}

TEST_F(EngineKilled, ACopyThatCannotBeWrittenIsStillThere) {
  EXPECT_THAT(next_start(GridShape(1, 2, 1, 1), /*full=*/true), HasSubstr("No space left"));
  EXPECT_EQ(next_start(), "step-00000020");
}

TEST_F(EngineKilled, CopiesOfAnotherPastAreNotWritten) {
  // Somebody takes the run back to before step 10.
  std::filesystem::rename(dir_ + "/step-00000010", root_ + "/aside");
  EXPECT_EQ(next_start(), "");
  std::filesystem::rename(root_ + "/aside", dir_ + "/step-00000010");
  // A start without the memory file system goes on to step 15 and dies.
  run_thread_ranks(2, {}, [&](Communicator& world) {
    Manifest base;
    base.id = {Step(10), 0};
    Rank rank(world, fs_, dir_, {.base = base});
    rank.save(15);
    rank.engine->drain();
    EXPECT_THAT(rank.reports(), ElementsAre("15"));
  });
  EXPECT_EQ(next_start(), "");
}

std::size_t resident_pages() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  file >> total >> resident;
  return resident;
}

TEST_F(EngineOnDisk, TwoHundredSavesLeaveMemoryAndDescriptorsFlat) {
  const auto world = make_solo();
  Rank rank(*world, fs_, root_ + "/run/checkpoints", {.memory_dir = memory_});
  const auto save = [&](int step) {
    rank.save(step);
    for (int i = 0; i < 3; ++i) rank.engine->boundary();
  };
  for (int step = 1; step <= 20; ++step) save(step);
  rank.engine->drain();
  const std::size_t files = fs_.list("/proc/self/fd").size(), pages = resident_pages();
  const std::size_t threads = fs_.list("/proc/self/task").size();
  for (int step = 21; step <= 220; ++step) save(step);
  rank.engine->drain();
  EXPECT_EQ(rank.loaded(220), "");
  EXPECT_EQ(fs_.list("/proc/self/fd").size(), files);
  EXPECT_EQ(fs_.list("/proc/self/task").size(), threads);
  // One leaked copy a save would be 200 times the state's 300 pages.
  EXPECT_LT(resident_pages(), pages + 600);
  EXPECT_EQ(copies().size(), 3u);
}

}  // namespace
}  // namespace fourfold
