// Power cut at every operation of what saves, removes and goes back among checkpoints that refer to
// older ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckpt/catalog.h"
#include "ckpt/commands.h"
#include "ckpt/file_names.h"
#include "comm/thread_world.h"
#include "tests/crash/memory_fs.h"
#include "tests/crash/rotating_rank.h"

namespace fourfold {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kDir = "run/checkpoints";

/// A run that starts anew for each save, and keeps so many checkpoints.
class RotatingRun {
 public:
  RotatingRun(MemoryFs& fs, int ranks, int keep, bool async)
      : fs_(fs), grid_(1, 1, 1, ranks), options_{.async = async, .save = {{.keep_latest = keep}}} {}

  /// The error of the start or the save; "" if none.
  std::string save(int step, Taken taken) {
    int base = 0;
    const std::string failed = on_ranks([&](RotatingRank& rank) {
      if (const std::string wrong = rank.start(); !wrong.empty()) return wrong;
      if (rank.world().rank() == 0 && rank.loaded()) base = step_of(*rank.loaded());
      return rank.save(step, taken);
    });
    versions_[step] = versions_after(base > 0 ? versions_.at(base) : Versions(), step, taken);
    return failed;
  }

  /// The step that a start goes on from, as text, its bits checked; "none" or the error.
  std::string load() {
    return on_ranks([&](RotatingRank& rank) {
      if (const auto seen = rank.store().check_shared_folder(rank.world()); !seen) {
        return std::string(seen.error().what());
      }
      if (const std::string wrong = rank.start(); !wrong.empty()) return wrong;
      if (!rank.loaded()) return std::string("none");
      const int step = step_of(*rank.loaded());
      const std::string wrong = rank.difference(step, versions_.at(step));
      return wrong.empty() ? std::to_string(step) : "wrong bits in " + wrong;
    });
  }

 private:
  static int step_of(const Manifest& manifest) { return static_cast<int>(manifest.id.step.value); }
  template <class Act>
  std::string on_ranks(Act act) {
    return on_rotating_ranks(fs_, kDir, grid_, options_, act);
  }

  MemoryFs& fs_;
  GridShape grid_;
  EngineOptions options_;
  std::map<int, Versions> versions_;  ///< Of the state of each step that was saved.
};

std::vector<std::string> problems(const Fs& fs) {
  return checkpoint_verify(fs, "run").value().problems;
}

/// Cuts the power at each operation of `act` after `prepare`, and hands what is left to `check`.
template <class Prepare, class Act, class Check>
void crash_everywhere(int ranks, int keep, bool async, Prepare prepare, Act act, Check check) {
  long operations = 0;
  {
    MemoryFs fs;
    RotatingRun run(fs, ranks, keep, async);
    prepare(fs, run);
    const long before = fs.operations();
    act(run);
    operations = fs.operations() - before;
  }
  ASSERT_GT(operations, 5);
  for (long k = 1; k <= operations; ++k) {
    for (const auto& [survival, number] : survivors(/*some=*/2)) {
      MemoryFs fs;
      RotatingRun run(fs, ranks, keep, async);
      prepare(fs, run);
      fs.crash_at = fs.operations() + k;
      act(run);
      ASSERT_TRUE(fs.crashed());
      fs.power_loss(survival, number + static_cast<unsigned>(k) * 100);
      check(fs, run, k);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

/// Both files of a rank before the manifest, which goes first when a checkpoint does.
TEST(RotationCrash, ThingsReachTheDiskInOrder) {
  MemoryFs fs;
  RotatingRun run(fs, 1, /*keep=*/1, /*async=*/false);
  ASSERT_EQ(run.save(1, kAllTaken), "");
  const std::size_t before = fs.trace().size();
  ASSERT_EQ(run.save(2, 0b000011), "");
  std::vector<std::string> steps;
  for (std::size_t i = before; i < fs.trace().size(); ++i) {
    const std::string& line = fs.trace()[i];
    if (line.starts_with("rename") || line.starts_with("remove")) steps.push_back(line);
    if (line.starts_with("sync") && !line.ends_with(kTemporarySuffix)) steps.back() += ", synced";
  }
  const std::string dir = std::string(kDir) + "/", one = dir + "step-00000001/",
                    two = dir + "step-00000002/";
  EXPECT_THAT(
      steps, ElementsAre("rename to " + two + dense_file_name(0) + ", synced",
                         "rename to " + two + expert_file_name(0) + ", synced",
                         "rename to " + two + "config.toml, synced",
                         "rename to " + two + "manifest.json, synced",
                         "rename to " + dir + "CURRENT, synced",
                         "remove " + one + "manifest.json, synced", "remove " + one + "config.toml",
                         "remove " + one + dense_file_name(0) + ", synced"));
}

/// A save whose retention leaves a folder of expert files behind, and removes another whole.
TEST(RotationCrash, EveryOperationOfASaveAndItsRetention) {
  const auto prepare = [](MemoryFs& fs, RotatingRun& run) {
    ASSERT_EQ(run.save(1, kAllTaken), "");
    ASSERT_EQ(run.save(2, 0b000011), "");
    ASSERT_THAT(fs.list("run/checkpoints/step-00000001"), testing::Each(HasSubstr("expert")));
  };
  const auto act = [](RotatingRun& run) { run.save(3, 0b111100); };
  int old_loaded = 0, new_loaded = 0;
  const auto check = [&](MemoryFs& fs, RotatingRun& run, long k) {
    ASSERT_THAT(problems(fs), IsEmpty()) << k;
    const std::string loaded = run.load();
    ASSERT_TRUE(loaded == "2" || loaded == "3") << k << ": " << loaded;
    ++(loaded == "2" ? old_loaded : new_loaded);
    ASSERT_EQ(run.save(4, 0b000001), "") << k;
    ASSERT_EQ(run.load(), "4") << k;
    ASSERT_THAT(problems(fs), IsEmpty()) << k;
  };
  for (const auto& [ranks, async] : {std::pair(1, false), {2, true}}) {
    crash_everywhere(ranks, /*keep=*/1, async, prepare, act, check);
  }
  EXPECT_GT(old_loaded, 0);
  EXPECT_GT(new_loaded, 0);
  MemoryFs fs;
  RotatingRun run(fs, 1, /*keep=*/1, /*async=*/true);
  prepare(fs, run);
  ASSERT_EQ(run.save(3, 0b111100), "");
  EXPECT_THAT(fs.list(kDir), ElementsAre("CURRENT", "step-00000002", "step-00000003"));
  EXPECT_THAT(fs.list("run/checkpoints/step-00000002"), ElementsAre(expert_file_name(0)));
}

/// A start that goes back: to a checkpoint whose experts lie in a folder that is none.
TEST(RotationCrash, EveryOperationOfAFallback) {
  for (const char* damaged : {"rank-00000.dense.safetensors", "rank-00000.expert.safetensors",
                              "manifest.json", "config.toml"}) {
    const auto prepare = [&](MemoryFs& fs, RotatingRun& run) {
      ASSERT_EQ(run.save(1, kAllTaken), "");
      ASSERT_EQ(run.save(2, 0b000011), "");
      ASSERT_EQ(run.save(3, 0b000110), "");
      const std::string file = "run/checkpoints/step-00000003/" + std::string(damaged);
      fs.flip(file, fs.content(file).size() - 5);
    };
    const auto act = [](RotatingRun& run) { run.load(); };
    const auto check = [&](MemoryFs& fs, RotatingRun& run, long k) {
      ASSERT_EQ(run.load(), "2") << k;
      ASSERT_THAT(problems(fs), IsEmpty()) << k;
      ASSERT_EQ(run.save(3, 0b100000), "") << k;
      ASSERT_EQ(run.load(), "3") << k;
      ASSERT_THAT(problems(fs), IsEmpty()) << k;
      ASSERT_EQ(read_catalog(fs, kDir).current, (CheckpointId{Step(3), 1})) << k;
    };
    crash_everywhere(1, /*keep=*/2, /*async=*/false, prepare, act, check);
  }
}

TEST(RotationFull, EveryOperationOfASaveAndItsRetention) {
  for (const bool async : {true, false}) {
    const auto prepare = [](RotatingRun& run) {
      ASSERT_EQ(run.save(1, kAllTaken), "");
      ASSERT_EQ(run.save(2, 0b000011), "");
    };
    MemoryFs whole;
    RotatingRun once(whole, 2, /*keep=*/1, async);
    prepare(once);
    const long before = whole.operations();
    ASSERT_EQ(once.save(3, 0b111100), "");
    const long operations = whole.operations() - before;
    ASSERT_GT(operations, 30);
    for (long k = 1; k <= operations; ++k) {
      MemoryFs fs;
      RotatingRun run(fs, 2, /*keep=*/1, async);
      prepare(run);
      fs.full_at = fs.operations() + k;
      const std::string failure = run.save(3, 0b111100);
      ASSERT_THAT(failure, HasSubstr("No space left on device")) << k;
      ASSERT_THAT(problems(fs), IsEmpty()) << k;
      const std::string loaded = run.load();
      ASSERT_TRUE(loaded == "2" || loaded == "3") << k << ": " << loaded;
      ASSERT_EQ(run.save(4, 0b000001), "") << k;
      ASSERT_EQ(run.load(), "4") << k;
      ASSERT_THAT(problems(fs), IsEmpty()) << k;
    }
  }
}

/// Bytes of all files that a checkpoint needs, flipped: never loaded as if they were good.
TEST(RotationFlip, NoFlippedByteIsLoaded) {
  MemoryFs fs;
  RotatingRun run(fs, 1, /*keep=*/1, /*async=*/false);
  ASSERT_EQ(run.save(1, kAllTaken), "");
  ASSERT_EQ(run.save(2, 0b000011), "");
  const Versions versions = versions_after(versions_after({}, 1, kAllTaken), 2, 0b000011);
  const auto world = make_solo();
  RotatingRank rank(*world, fs, kDir, GridShape());
  int passed = 0, refused = 0;
  for (const std::string& path : fs.files()) {
    if (path.ends_with("CURRENT")) continue;
    // Tensors of the older one that this one wrote anew may be anything.
    const bool may_pass = path.find("step-00000001") != path.npos;
    for (std::size_t i = 0; i < fs.content(path).size(); i += 7) {
      fs.flip(path, i, static_cast<unsigned char>(1 << (i % 8)));
      const std::string wrong = rank.loaded_difference("", 2, versions);
      fs.flip(path, i, static_cast<unsigned char>(1 << (i % 8)));
      ASSERT_TRUE(wrong.starts_with("none of the checkpoints") || (wrong.empty() && may_pass))
          << path << " " << i << ": " << wrong;
      ++(wrong.empty() ? passed : refused);
    }
  }
  EXPECT_GT(passed, 0);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace fourfold
