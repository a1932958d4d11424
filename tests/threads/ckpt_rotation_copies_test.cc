// What memory alone has of a run whose checkpoints refer to older ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "ckpt/commands.h"
#include "ckpt/snapshot_buffer.h"
#include "ckpt/surviving_copies.h"
#include "comm/thread_world.h"
#include "tests/crash/rotating_rank.h"
#include "tests/threads/one_rank_fs.h"

namespace fourfold {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A run whose process dies while its disk stands still: what it had copied is in memory.
class RotationKilled : public testing::Test {
 protected:
  RotationKilled() {
    char name[] = "/tmp/fourfold-rotation-XXXXXX";
    root_ = ::mkdtemp(name);
    std::filesystem::create_directory(root_ + "/memory");
  }
  ~RotationKilled() override { std::filesystem::remove_all(root_); }

  /// Saves while the disk takes nothing, after saves that it took; what is copied stays.
  void die(const std::vector<std::pair<int, Taken>>& on_disk,
           const std::vector<std::pair<int, Taken>>& copied) {
    run_thread_ranks(2, {}, [&](Communicator& world) {
      OneRankFs mine(fs_, world.rank() == 1);
      RotatingRank rank(world, mine, dir_, kGrid, {.memory_dir = root_ + "/memory"});
      EXPECT_EQ(rank.start(), "");
      for (const auto& [step, taken] : on_disk) EXPECT_EQ(rank.save(step, taken), "");
      world.barrier().wait_host();
      if (world.rank() == 0 && fs_.exists(dir_)) std::filesystem::copy(dir_, disk_, kAll);
      mine.stands_still = true;
      for (const auto& [step, taken] : copied) rank.begin_save(step, taken);
      world.barrier().wait_host();
      if (world.rank() == 0) std::filesystem::copy(folder(), root_ + "/kept", kAll);
      world.barrier().wait_host();
      mine.release();
    });
    for (const auto& [from, to] : {std::pair(disk_, dir_), {root_ + "/kept", folder()}}) {
      std::filesystem::remove_all(to);
      if (fs_.exists(from)) std::filesystem::copy(from, to, kAll);
    }
  }

  /// What the next start writes, and how it differs from a state of these versions.
  std::pair<std::string, std::string> next_start(int step, const Versions& versions) {
    std::pair<std::string, std::string> found;
    run_thread_ranks(2, {}, [&](Communicator& world) {
      RotatingRank rank(world, fs_, dir_, kGrid);
      const auto written =
          write_surviving_copies(world, rank.store(), fs_, folder(), test_meta(0, kGrid, 1));
      const std::string start = rank.start();
      if (world.rank() != 0) return;
      lines_ = rank.lines;
      if (!written) {
        found.first = written.error().what();
      } else if (written.value()) {
        found.first = written.value()->folder();
      }
      found.second = start.empty() ? rank.difference(step, versions) : start;
    });
    return found;
  }

  std::string folder() const { return private_copies_folder(root_ + "/memory", "", dir_); }

  static constexpr auto kAll = std::filesystem::copy_options::recursive;
  const GridShape kGrid{1, 1, 2, 1};
  std::string root_;
  PosixFs fs_;
  std::string dir_, disk_;
  std::vector<std::string> lines_;

  void SetUp() override {
    dir_ = root_ + "/run/checkpoints";
    disk_ = root_ + "/disk";
  }
};

TEST_F(RotationKilled, WhatACopyLeavesOutIsWhatTheDiskHas) {
  die({{10, kAllTaken}, {20, 0b000011}}, {{30, 0b000110}});
  Versions versions = versions_after({}, 10, kAllTaken);
  versions = versions_after(versions_after(versions, 20, 0b000011), 30, 0b000110);
  EXPECT_EQ(next_start(30, versions), std::pair(std::string("step-00000030"), std::string()));
  EXPECT_THAT(checkpoint_verify(fs_, dir_).value().problems, IsEmpty());
}

/// Of two on their way the newer one is taken, though the other never got to the disk.
TEST_F(RotationKilled, ACopyDoesNotNeedTheOneBeforeIt) {
  die({{10, kAllTaken}}, {{20, 0b000011}, {30, 0b000110}});
  const Versions versions = versions_after(versions_after({}, 10, kAllTaken), 30, 0b000110);
  EXPECT_EQ(next_start(30, versions), std::pair(std::string("step-00000030"), std::string()));
}

TEST_F(RotationKilled, ACopyThatLeavesOutWhatNoCheckpointHasIsPassedOver) {
  die({}, {{10, kAllTaken}, {20, 0b000011}});
  EXPECT_EQ(next_start(10, versions_after({}, 10, kAllTaken)),
            std::pair(std::string("step-00000010"), std::string()));
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("no checkpoint has what it leaves out")));
}

}  // namespace
}  // namespace fourfold
