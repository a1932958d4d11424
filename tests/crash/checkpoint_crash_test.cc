#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckpt/commands.h"
#include "ckpt/engine.h"
#include "ckpt/store.h"
#include "comm/thread_world.h"
#include "tests/crash/memory_fs.h"
#include "tests/crash/state_fixture.h"

namespace fourfold {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kDir = "run/checkpoints";
constexpr int kOld = 1, kNew = 2, kNext = 3;

/// Whether training waits for a save, or a copy is written in the background.
enum class Saving { kBlocking, kAsync };

/// A run of so many thread ranks that saves, loads and keeps two checkpoints.
class TestRun {
 public:
  TestRun(MemoryFs& fs, int ranks, Saving saving = Saving::kBlocking)
      : fs_(fs), grid_(1, 1, 1, ranks), saving_(saving) {}

  /// The error of a save and the retention after it; "" if none. The same on all ranks.
  std::string save(int step) {
    return on_ranks([&](Communicator& world, CheckpointStore& store, TestState& state) {
      constexpr Retention kOne{.keep_latest = 1};
      state.fill(step);
      CheckpointEngine engine(world, store, state.tensors(),
                              {.async = saving_ == Saving::kAsync, .save = {.retention = kOne}},
                              {});
      engine.save(test_meta(step, grid_, 1));
      engine.before_update();
      state.clear();  // What is saved was copied, or is on the disk.
      engine.drain();
      const SaveReport report = engine.take_reports().at(0).save;
      if (report.error) return std::string(report.error->what());
      const auto& kept = report.retention_error;
      return kept ? std::string("retention: ") + kept->what() : std::string();
    });
  }

  /// The step that is loaded, bit by bit, as text; "none" or the error.
  std::string load() {
    return on_ranks([&](Communicator& world, CheckpointStore& store, TestState& state) {
      state.clear();
      const auto loaded = store.load_latest(world, state.tensors());
      if (!loaded) return std::string(loaded.error().what());
      if (!loaded.value()) return std::string("none");
      const auto step = loaded.value()->meta.step.value;
      const std::string wrong = state.difference(static_cast<int>(step));
      return wrong.empty() ? std::to_string(step) : "wrong bits in " + wrong;
    });
  }

 private:
  template <class Act>
  std::string on_ranks(Act act) {
    std::vector<std::string> results(static_cast<std::size_t>(grid_.size()));
    const auto rank_main = [&](Communicator& world) {
      CheckpointStore store(fs_, kDir);
      TestState state(grid_, world.rank(), /*zero=*/true, /*large=*/false);
      results[static_cast<std::size_t>(world.rank())] = act(world, store, state);
    };
    if (grid_.size() == 1) {
      rank_main(*make_solo());
    } else {
      run_thread_ranks(grid_.size(), {}, rank_main);
    }
    for (const std::string& r : results) EXPECT_EQ(r, results[0]) << "ranks disagree";
    return results[0];
  }

  MemoryFs& fs_;
  GridShape grid_;
  Saving saving_;
};

/// Operations of a save (with retention) onto an older checkpoint.
long operations_of_a_save(int ranks, Saving saving) {
  MemoryFs fs;
  TestRun run(fs, ranks, saving);
  EXPECT_EQ(run.save(kOld), "");
  const long before = fs.operations();
  EXPECT_EQ(run.save(kNew), "");
  return fs.operations() - before;
}

void crash_everywhere(int ranks, Saving saving) {
  const long operations = operations_of_a_save(ranks, saving);
  ASSERT_GT(operations, 15);
  int old_loaded = 0, new_loaded = 0;
  for (long k = 1; k <= operations; ++k) {
    for (const auto& [survival, number] : survivors(/*some=*/4)) {
      MemoryFs fs;
      TestRun run(fs, ranks, saving);
      ASSERT_EQ(run.save(kOld), "");
      fs.crash_at = fs.operations() + k;
      const std::string failure = run.save(kNew);
      ASSERT_TRUE(fs.crashed());
      ASSERT_NE(failure, "") << k;
      fs.power_loss(survival, number + static_cast<unsigned>(k) * 100);
      // Nothing that could be taken for a checkpoint is less than a whole one.
      ASSERT_THAT(checkpoint_verify(fs, "run").value().problems, IsEmpty()) << k;
      const std::string loaded = run.load();
      ASSERT_TRUE(loaded == std::to_string(kOld) || loaded == std::to_string(kNew))
          << "operation " << k << ", survivor " << number << ": " << loaded;
      ++(loaded == std::to_string(kOld) ? old_loaded : new_loaded);
      ASSERT_EQ(run.save(kNext), "") << k;
      ASSERT_EQ(run.load(), std::to_string(kNext)) << k;
      ASSERT_THAT(checkpoint_verify(fs, "run").value().problems, IsEmpty()) << k;
    }
  }
  // A crash early leaves the old one, one in the retention the new one.
  EXPECT_GT(old_loaded, 0);
  EXPECT_GT(new_loaded, 0);
}

/// Data, then directory, then manifest, then pointer, each synced before the next: on a file system
/// of several machines a later sync of another does not make up for a missing one.
TEST(CheckpointCrash, ThingsReachTheDiskInOrder) {
  MemoryFs fs;
  ASSERT_EQ(TestRun(fs, 1).save(kOld), "");
  std::vector<std::string> expected = {"make run/checkpoints",
                                       "make run/checkpoints/step-00000001"};
  const auto atomic_write = [&](const std::string& folder, const std::string& name) {
    const std::string path = join_path(folder, name), temporary = path + kTemporarySuffix;
    for (const char* action : {"make ", "write ", "sync ", "close "}) {
      expected.push_back(action + temporary);
    }
    expected.push_back("rename to " + path);
    expected.push_back("sync " + folder);
  };
  const std::string folder = "run/checkpoints/step-00000001";
  atomic_write(folder, "rank-00000.dense.safetensors");
  atomic_write(folder, "config.toml");
  atomic_write(folder, "manifest.json");
  atomic_write("run/checkpoints", "CURRENT");
  EXPECT_EQ(fs.trace(), expected);
}

TEST(CheckpointCrash, EveryOperationOfOneRank) { crash_everywhere(1, Saving::kBlocking); }

TEST(CheckpointCrash, EveryOperationOfThreeRanks) { crash_everywhere(3, Saving::kBlocking); }

TEST(CheckpointCrash, EveryOperationInTheBackground) {
  crash_everywhere(1, Saving::kAsync);
  crash_everywhere(3, Saving::kAsync);
}

TEST(CheckpointCrash, TheFirstSaveLeavesNothingOrAll) {
  MemoryFs whole;
  TestRun(whole, 1).save(kOld);
  for (long k = 1; k <= whole.operations(); ++k) {
    for (const auto& [survival, number] : survivors(/*some=*/4)) {
      MemoryFs fs;
      TestRun run(fs, 1);
      fs.crash_at = k;
      ASSERT_NE(run.save(kOld), "");
      fs.power_loss(survival, number + static_cast<unsigned>(k) * 100);
      const std::string loaded = run.load();
      ASSERT_TRUE(loaded == "none" || loaded == std::to_string(kOld)) << k << ": " << loaded;
      ASSERT_EQ(run.save(kNext), "");
      ASSERT_EQ(run.load(), std::to_string(kNext));
    }
  }
}

/// A crash while a damaged checkpoint is set aside, too, leaves the good one loadable.
TEST(CheckpointCrash, EveryOperationOfAFallback) {
  const auto prepare = [](MemoryFs& fs) {
    TestRun run(fs, 1);
    ASSERT_EQ(run.save(kOld), "");
    CheckpointStore store(fs, kDir);
    TestState state(GridShape(), 0, /*zero=*/true, /*large=*/false);
    state.fill(kNew);
    ASSERT_TRUE(store.save(*make_solo(), test_meta(kNew), state.tensors()));
    const std::string shard = "run/checkpoints/step-00000002/rank-00000.dense.safetensors";
    fs.flip(shard, fs.content(shard).size() - 5);
  };
  MemoryFs whole;
  prepare(whole);
  const long before = whole.operations();
  ASSERT_EQ(TestRun(whole, 1).load(), std::to_string(kOld));
  for (long k = 1; k <= whole.operations() - before; ++k) {
    for (const auto& [survival, number] : survivors(/*some=*/4)) {
      MemoryFs fs;
      prepare(fs);
      fs.crash_at = fs.operations() + k;
      TestRun run(fs, 1);
      run.load();
      fs.power_loss(survival, number + static_cast<unsigned>(k) * 100);
      ASSERT_EQ(run.load(), std::to_string(kOld)) << k;
      ASSERT_EQ(run.save(kNew), "") << k;
      ASSERT_EQ(run.load(), std::to_string(kNew)) << k;
    }
  }
}

void fill_everywhere(int ranks, Saving saving) {
  const long operations = operations_of_a_save(ranks, saving);
  for (long k = 1; k <= operations; ++k) {
    MemoryFs fs;
    TestRun run(fs, ranks, saving);
    ASSERT_EQ(run.save(kOld), "");
    fs.full_at = fs.operations() + k;
    const std::string failure = run.save(kNew);
    ASSERT_THAT(failure, HasSubstr("No space left on device")) << k;
    // A failed save leaves the old one; a failed retention, or what fails once the pointer has
    // moved, the new one.
    const bool saved = failure.starts_with("retention") ||
                       fs.content("run/checkpoints/CURRENT").starts_with("step-00000002");
    ASSERT_EQ(run.load(), std::to_string(saved ? kNew : kOld)) << k << ": " << failure;
    ASSERT_EQ(run.save(kNext), "") << k;
    ASSERT_EQ(run.load(), std::to_string(kNext)) << k;
    ASSERT_THAT(checkpoint_verify(fs, "run").value().problems, IsEmpty()) << k;
    ASSERT_EQ(fs.open_files(), 0);
  }
}

TEST(CheckpointFull, EveryOperationOfOneRank) { fill_everywhere(1, Saving::kBlocking); }

TEST(CheckpointFull, EveryOperationOfThreeRanks) { fill_everywhere(3, Saving::kBlocking); }

TEST(CheckpointFull, EveryOperationInTheBackground) {
  fill_everywhere(1, Saving::kAsync);
  fill_everywhere(3, Saving::kAsync);
}

/// A disk that says it has room and has none, at every size: quotas and other writers do that.
TEST(CheckpointFull, ADiskThatFillsWhileWriting) {
  MemoryFs whole;
  TestRun both(whole, 2);
  ASSERT_EQ(both.save(kOld), "");
  std::int64_t used = 0;
  for (const std::string& path : whole.files()) {
    used += static_cast<std::int64_t>(whole.content(path).size());
  }
  for (std::int64_t room = 0; room < used; room += used / 40 + 1) {
    MemoryFs fs;
    TestRun run(fs, 2);
    ASSERT_EQ(run.save(kOld), "");
    fs.capacity = used + room;
    fs.reported_free = std::int64_t{1} << 40;
    ASSERT_THAT(run.save(kNew), HasSubstr("No space left on device")) << room;
    ASSERT_EQ(run.load(), std::to_string(kOld)) << room;
    fs.capacity = std::int64_t{1} << 40;
    ASSERT_EQ(run.save(kNew), "") << room;
    ASSERT_EQ(run.load(), std::to_string(kNew)) << room;
  }
}

/// Each byte of each file of a small checkpoint, flipped: never loaded as if it were good.
TEST(CheckpointFlip, NoFlippedByteIsLoaded) {
  MemoryFs fs;
  TestRun run(fs, 1);
  ASSERT_EQ(run.save(kOld), "");
  const auto world = make_solo();
  TestState state(GridShape(), 0, /*zero=*/true, /*large=*/false);
  CheckpointStore store(fs, kDir);
  for (const std::string& path : fs.files()) {
    if (path.ends_with("CURRENT")) continue;
    const std::size_t size = fs.content(path).size();
    for (std::size_t i = 0; i < size; ++i) {
      fs.flip(path, i, static_cast<unsigned char>(1 << (i % 8)));
      const auto loaded = store.load(*world, "", state.tensors());
      fs.flip(path, i, static_cast<unsigned char>(1 << (i % 8)));
      ASSERT_FALSE(loaded) << path << " " << i;
      ASSERT_EQ(loaded.error().kind(), ErrorKind::kNoCheckpoint);
    }
  }
  EXPECT_EQ(run.load(), std::to_string(kOld));
}

}  // namespace
}  // namespace fourfold
