#include "device/intra_op_threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace fourfold {
namespace {

TEST(IntraOpThreads, BelongToTheCallingThread) {
  set_intra_op_threads(1);
  EXPECT_EQ(intra_op_threads(), 1);
  std::thread([] {
    set_intra_op_threads(2);
    EXPECT_EQ(intra_op_threads(), 2);
  }).join();
  EXPECT_EQ(intra_op_threads(), 1);
  set_intra_op_threads(0);
  EXPECT_EQ(intra_op_threads(), 1);
}

TEST(IntraOpThreads, DefaultSharesTheCoresOfTheAffinityMask) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  EXPECT_EQ(available_cores(), CPU_COUNT(&all));
  EXPECT_EQ(default_intra_op_threads(1), available_cores());
  EXPECT_EQ(default_intra_op_threads(1000000), 1);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i) {
    if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(default_intra_op_threads(1), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
}

}  // namespace
}  // namespace fourfold
