#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <array>

#include "comm/thread_world.h"

namespace fourfold {
namespace {

TEST(CommunicatorDeathTest, ChecksItsArguments) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  ThreadWorld world(2);
  const auto comm = world.communicator(0);
  std::array<float, 4> data{};
  const Buffer four{data.data(), 4, DType::kF32};
  const Buffer two{data.data(), 2, DType::kF32};
  const std::array<std::int64_t, 2> counts{2, 2};
  const std::array<std::int64_t, 1> one_count{4};
  const std::array<std::int64_t, 2> negative{5, -1};
  EXPECT_DEATH((void)comm->all_reduce({nullptr, 4, DType::kF32}, ReduceOp::kSum), "at null");
  EXPECT_DEATH((void)comm->all_gather(two, four, one_count), "1 all_gather counts for 2 ranks");
  EXPECT_DEATH((void)comm->all_gather(four, four, counts), "gives 4 elements, its count is 2");
  EXPECT_DEATH((void)comm->reduce_scatter(four, two, negative, ReduceOp::kSum), "count -1");
  EXPECT_DEATH((void)comm->reduce_scatter(two, two, counts, ReduceOp::kSum), "add up to 4");
  EXPECT_DEATH((void)comm->broadcast(four, 2), "from rank 2 of 2");
  EXPECT_DEATH((void)comm->send(four, 0), "rank 0 of 2 sends to 0");
  EXPECT_DEATH((void)comm->subgroup(std::array<int, 1>{1}, "g"), "which is not in it");
  EXPECT_DEATH((void)comm->subgroup(std::array<int, 3>{0, 1, 1}, "g"), "rank 1 twice");
  EXPECT_DEATH((void)world.communicator(2), "rank 2 of 2");
}

TEST(Communicator, OfOneRankKeepsAndCopies) {
  const auto solo = make_solo();
  EXPECT_EQ(solo->size(), 1);
  std::array<float, 3> in{1, 2, 3}, out{};
  const std::array<std::int64_t, 1> counts{3};
  solo->all_gather({in.data(), 3, DType::kF32}, {out.data(), 3, DType::kF32}, counts).wait_host();
  EXPECT_EQ(out, in);
  solo->all_reduce({out.data(), 3, DType::kF32}, ReduceOp::kAvg, Lane::kReduce).wait_host();
  EXPECT_EQ(out, in);
  EXPECT_EQ(solo->split(3, 1, "alone")->name(), "alone");
}

}  // namespace
}  // namespace fourfold
