#include <gtest/gtest.h>

#include "comm/thread_world.h"
#include "tests/threads/collective_suite.h"

namespace fourfold {
namespace {

// ThreadSanitizer slows the suite's own loops down by 20; it looks at who touches what, not how
// much.
#ifdef __SANITIZE_THREAD__
constexpr SuiteOptions kOptions{.large = false, .longest = 1000};
#else
constexpr SuiteOptions kOptions{};
#endif

TEST(Solo, RunsTheSuite) {
  const auto solo = make_solo();
  run_collective_suite(*solo, kOptions);
}

class ThreadRanks : public ::testing::TestWithParam<int> {};

TEST_P(ThreadRanks, RunTheSuite) {
  run_thread_ranks(GetParam(), {},
                   [](Communicator& world) { run_collective_suite(world, kOptions); });
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadRanks, ::testing::Range(1, 9));

TEST(Unchecked, RunTheSuite) {
  run_thread_ranks(3, {.check = CommCheck::kOff, .trace_length = 0}, [](Communicator& world) {
    run_collective_suite(world, {.large = false, .longest = 1000});
    EXPECT_TRUE(world.trace().empty());
  });
}

}  // namespace
}  // namespace fourfold
