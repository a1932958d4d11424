#include "comm/emulated_network.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "comm/thread_world.h"

namespace fourfold {
namespace {

/// 1 KB/s inside nodes of 4, 100 B/s between, latencies 1 ms and 2 ms.
EmulatedNetwork network() { return {4, {1000, 1e-3}, {100, 2e-3}}; }

double seconds(OpKind kind, std::int64_t bytes, const std::vector<int>& members) {
  Call call{.kind = kind, .dtype = DType::kU8};
  call.in_count = call.out_count = bytes;
  return network().seconds(call, members);
}

TEST(EmulatedNetwork, TakesWhatARingWould) {
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllReduce, 1000, {0, 1, 2, 3}), 6e-3 + 1.5);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllGather, 1000, {0, 1, 2, 3}), 3e-3 + 0.75);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kReduceScatter, 1000, {2, 3}), 1e-3 + 0.5);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kSend, 1000, {0, 3}), 1e-3 + 1);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kBarrier, 0, {0, 1, 2}), 2e-3);
}

TEST(EmulatedNetwork, GroupsSideBySideShareANodesLink) {
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllGather, 100, {0, 4}), 2e-3 + 0.5 * 4);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllGather, 100, {0, 8}), 2e-3 + 0.5 * 4);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllGather, 100, {0, 2, 4, 6}), 3 * 2e-3 + 0.75 * 2);
  EXPECT_DOUBLE_EQ(seconds(OpKind::kAllGather, 100, {0, 1, 2, 3, 4, 5, 6, 7}), 7 * 2e-3 + 0.875);
}

/// The operations of all lanes of a rank go over one link, one after the other.
TEST(EmulatedNetwork, OperationsWaitForIt) {
  using Seconds = std::chrono::duration<double>;
  CommOptions options;
  options.network = std::make_shared<EmulatedNetwork>(EmulatedNetwork{2, {1e6, 0}, {1e6, 0}});
  std::atomic<int> wrong{0};
  run_thread_ranks(2, options, [&](Communicator& world) {
    std::vector<std::uint8_t> a(40'000, 1), b(40'000, 2);  // 40 ms each.
    const auto began = std::chrono::steady_clock::now();
    Work first = world.all_reduce({a.data(), 40'000, DType::kU8}, ReduceOp::kMax, Lane::kReduce);
    Work second = world.all_reduce({b.data(), 40'000, DType::kU8}, ReduceOp::kMax, Lane::kScatter);
    first.wait_host();
    second.wait_host();
    if (Seconds(std::chrono::steady_clock::now() - began).count() < 0.08) ++wrong;
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace fourfold
