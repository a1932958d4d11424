#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "comm/thread_world.h"
#include "tests/threads/collective_suite.h"

namespace fourfold {
namespace {

TEST(Solo, RunsTheSuite) {
  const auto solo = make_solo();
  run_collective_suite(*solo);
}

class ThreadRanks : public ::testing::TestWithParam<int> {};

TEST_P(ThreadRanks, RunTheSuite) {
  run_thread_ranks(GetParam(), {}, [](Communicator& world) { run_collective_suite(world); });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadRanks, ::testing::Range(1, 9));

TEST(Unchecked, RunTheSuite) {
  run_thread_ranks(3, {.check = CommCheck::kOff, .trace_length = 0}, [](Communicator& world) {
    run_collective_suite(world, {.large = false});
    EXPECT_TRUE(world.trace().empty());
  });
}

}  // namespace
}  // namespace fourfold
