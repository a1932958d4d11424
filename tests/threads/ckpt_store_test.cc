#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "ckpt/commands.h"
#include "ckpt/store.h"
#include "comm/thread_world.h"
#include "tests/crash/memory_fs.h"
#include "tests/crash/state_fixture.h"
#include "tests/threads/one_rank_fs.h"

namespace fourfold {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kDir = "run/checkpoints";

struct Case {
  GridShape grid;
  bool zero = false;
  std::string name() const { return grid.name() + (zero ? " ZeRO" : ""); }
};

const std::vector<Case> kCases = {
    {GridShape(1, 1, 1, 1)},       {GridShape(2, 1, 1, 1)}, {GridShape(1, 2, 1, 1)},
    {GridShape(1, 1, 2, 1)},       {GridShape(1, 1, 1, 2)}, {GridShape(1, 1, 1, 3), true},
    {GridShape(2, 2, 1, 1), true}, {GridShape(4, 1, 1, 1)}, {GridShape(1, 3, 1, 2), true},
    {GridShape(2, 1, 2, 2), true}, {GridShape(2, 2, 2, 1)}, {GridShape(3, 2, 1, 1)},
};

/// What each rank's call gave: "" or the error.
template <class Act>
std::vector<std::string> on_ranks(int ranks, const CommOptions& options, Act act) {
  std::vector<std::string> results(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, options, [&](Communicator& world) {
    results[static_cast<std::size_t>(world.rank())] = act(world);
  });
  return results;
}

template <class Value>
std::string text_of(const Result<Value>& result) {
  return result ? "" : result.error().what();
}

std::string save_step(Fs& fs, Communicator& world, const Case& c, int step) {
  TestState state(c.grid, world.rank(), c.zero);
  state.fill(step);
  CheckpointStore store(fs, kDir);
  return text_of(store.save(world, test_meta(step, c.grid, c.zero ? 1 : 0), state.tensors()));
}

/// Loads the newest on a rank; "" where it is that step, bit by bit.
std::string load_step(Fs& fs, Communicator& world, const Case& c, int step) {
  TestState state(c.grid, world.rank(), c.zero);
  state.clear();
  CheckpointStore store(fs, kDir);
  const auto loaded = store.load_latest(world, state.tensors());
  if (!loaded) return loaded.error().what();
  if (!loaded.value()) return "no checkpoint";
  if (loaded.value()->meta.step.value != step) return loaded.value()->id.folder();
  return state.difference(step);
}

TEST(CheckpointRanks, SavedOnEachGridLoadedOnEachOther) {
  for (const Case& from : kCases) {
    MemoryFs fs;
    EXPECT_THAT(
        on_ranks(from.grid.size(), {}, [&](Communicator& w) { return save_step(fs, w, from, 7); }),
        Each(IsEmpty()))
        << from.name();
    const auto report = checkpoint_verify(fs, "run");
    EXPECT_THAT(report.value().problems, IsEmpty()) << from.name();
    for (const Case& to : kCases) {
      EXPECT_THAT(
          on_ranks(to.grid.size(), {}, [&](Communicator& w) { return load_step(fs, w, to, 7); }),
          Each(IsEmpty()))
          << from.name() << " to " << to.name();
    }
  }
}

/// A rank opens the files of those who held what it wants, and no others.
TEST(CheckpointRanks, ALoadOpensOnlyWhatItNeeds) {
  const auto opened = [](GridShape from, GridShape to) {
    MemoryFs fs;
    on_ranks(from.size(), {}, [&](Communicator& w) {
      TestState state(from, w.rank(), /*zero=*/false);
      state.fill(1);
      // Those that every rank has a part of would make every rank open every file.
      std::erase_if(state.tensors(), [](const StateTensor& t) { return t.name != "head.weight"; });
      return text_of(CheckpointStore(fs, kDir).save(w, test_meta(1, from), state.tensors()));
    });
    std::vector<int> counts(static_cast<std::size_t>(to.size()));
    on_ranks(to.size(), {}, [&](Communicator& w) {
      OneRankFs mine(fs, false);
      TestState state(to, w.rank(), /*zero=*/false);
      std::erase_if(state.tensors(), [](const StateTensor& t) { return t.name != "head.weight"; });
      const auto loaded = CheckpointStore(mine, kDir).load(w, "", state.tensors());
      counts[static_cast<std::size_t>(w.rank())] = mine.shards_opened;
      return text_of(loaded);
    });
    return counts;
  };
  // 13 rows over x·y.
  EXPECT_THAT(opened({2, 2, 1, 1}, {2, 2, 1, 1}), Each(1));
  EXPECT_THAT(opened({2, 2, 1, 1}, {1, 1, 1, 1}), ElementsAre(4));
  EXPECT_THAT(opened({2, 2, 1, 1}, {2, 1, 1, 1}), Each(2));
}

TEST(CheckpointRanks, EveryReplicaWritesItsShare) {
  MemoryFs fs;
  const Case c{GridShape(1, 1, 1, 4)};
  on_ranks(4, {}, [&](Communicator& w) { return save_step(fs, w, c, 1); });
  std::vector<std::size_t> sizes;
  for (const std::string& path : fs.files()) {
    if (path.ends_with(".safetensors")) sizes.push_back(fs.content(path).size());
  }
  ASSERT_EQ(sizes.size(), 4u);
  const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
  EXPECT_LT(static_cast<double>(*most), 1.1 * static_cast<double>(*least));
}

const Case kThree{GridShape(1, 3, 1, 1)};

TEST(CheckpointRanks, OneRanksFailureIsEveryones) {
  MemoryFs fs;
  on_ranks(3, {}, [&](Communicator& w) { return save_step(fs, w, kThree, 1); });
  const auto before = fs.files();
  const auto results = on_ranks(3, {}, [&](Communicator& w) {
    OneRankFs mine(fs, w.rank() == 1);
    mine.refuse_to_create = "rank-00001";
    return save_step(mine, w, kThree, 2);
  });
  EXPECT_THAT(results, Each(AllOf(HasSubstr("rank 1 ("), HasSubstr("wanted 100 B, free 5 B"))));
  EXPECT_EQ(fs.files(), before) << "nothing is left of it";
  EXPECT_THAT(on_ranks(3, {}, [&](Communicator& w) { return load_step(fs, w, kThree, 1); }),
              Each(IsEmpty()));
  EXPECT_THAT(on_ranks(3, {}, [&](Communicator& w) { return save_step(fs, w, kThree, 2); }),
              Each(IsEmpty()));
  EXPECT_THAT(on_ranks(3, {}, [&](Communicator& w) { return load_step(fs, w, kThree, 2); }),
              Each(IsEmpty()));
}

TEST(CheckpointRanks, WhatOneRankCannotReadNobodyTakes) {
  MemoryFs fs;
  for (const int step : {1, 2}) {
    on_ranks(3, {}, [&](Communicator& w) { return save_step(fs, w, kThree, step); });
  }
  for (const char* file : {"step-00000002/rank-00002", "step-00000002/manifest"}) {
    EXPECT_THAT(on_ranks(3, {},
                         [&](Communicator& w) {
                           OneRankFs mine(fs, w.rank() == 2);
                           mine.refuse_to_open = file;
                           TestState state(kThree.grid, w.rank(), false);
                           CheckpointStore store(mine, kDir);
                           const auto loaded = store.load(w, "", state.tensors());
                           if (!loaded) return std::string(loaded.error().what());
                           EXPECT_THAT(loaded.value().skipped.at(0), HasSubstr("rank 2 ("));
                           return state.difference(1);
                         }),
                Each(IsEmpty()));
  }
}

TEST(CheckpointRanks, ASlowDiskIsNoLostPeer) {
  MemoryFs fs;
  CommOptions options;
  options.timeout_seconds = 0.7;
  EXPECT_THAT(on_ranks(3, options,
                       [&](Communicator& w) {
                         OneRankFs mine(fs, w.rank() == 1);
                         mine.create_seconds = 2;
                         return save_step(mine, w, kThree, 1);
                       }),
              Each(IsEmpty()));
}

TEST(CheckpointRanks, ARankThatDoesNotSaveIsReported) {
  MemoryFs fs;
  CommOptions options;
  options.timeout_seconds = 0.5;
  ErrorKind kind{};
  try {
    run_thread_ranks(3, options, [&](Communicator& w) {
      TestState state(kThree.grid, w.rank(), false);
      CheckpointStore store(fs, kDir);
      if (w.rank() == 1) return;
      const auto saved = store.save(w, test_meta(1), state.tensors());
      if (!saved) throw saved.error();
    });
  } catch (const Error& error) {
    kind = error.kind();
  }
  EXPECT_EQ(kind, ErrorKind::kCommunication);
}

TEST(CheckpointRanks, RanksMustSeeTheSameFolder) {
  MemoryFs shared, other;
  EXPECT_THAT(on_ranks(3, {},
                       [&](Communicator& w) {
                         return text_of(CheckpointStore(shared, kDir).check_shared_folder(w));
                       }),
              Each(IsEmpty()));
  EXPECT_THAT(shared.files(), ElementsAre("run/checkpoints/RUN_ID"));
  EXPECT_THAT(
      on_ranks(3, {},
               [&](Communicator& w) {
                 return text_of(
                     CheckpointStore(w.rank() == 2 ? other : shared, kDir).check_shared_folder(w));
               }),
      Each(AllOf(HasSubstr("rank 2 ("), HasSubstr("is not the folder that rank 0 has"))));
}

TEST(CheckpointRanks, RanksThatSaveDifferentThingsAreRefused) {
  MemoryFs fs;
  EXPECT_THAT(
      on_ranks(3, {},
               [&](Communicator& w) { return save_step(fs, w, kThree, w.rank() == 2 ? 5 : 4); }),
      Each(HasSubstr("saves step 5 where rank 0 saves 4")));
  // Replicas that all write: each says that it is the only one.
  EXPECT_THAT(on_ranks(3, {},
                       [&](Communicator& w) {
                         TestState state(kThree.grid, w.rank(), false);
                         state.tensors().back().replicas = 1;
                         state.tensors().back().replica = 0;
                         CheckpointStore store(fs, kDir);
                         return text_of(store.save(w, test_meta(4), state.tensors()));
                       }),
              Each(HasSubstr("whole and once")));
}

}  // namespace
}  // namespace fourfold
