#include "comm/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/bfloat16.h"

namespace fourfold {
namespace {

template <class T>
std::vector<T> reduce(DType dtype, ReduceOp op, const std::vector<std::vector<T>>& inputs) {
  std::vector<const void*> in;
  for (const auto& i : inputs) in.push_back(i.data());
  std::vector<T> out(inputs[0].size());
  reduce_ascending(dtype, op, in, {{out.data()}}, static_cast<std::int64_t>(out.size()));
  return out;
}

TEST(Reduce, AddsFloatsInAscendingRank) {
  // (1e8 + 1) - 1e8 is 0 in fp32, while any other order gives 1.
  EXPECT_EQ(reduce<float>(DType::kF32, ReduceOp::kSum, {{1e8f}, {1.0f}, {-1e8f}})[0], 0.0f);
  EXPECT_EQ(reduce<float>(DType::kF32, ReduceOp::kSum, {{1e8f}, {-1e8f}, {1.0f}})[0], 1.0f);
}

TEST(Reduce, RoundsBfloat16Once) {
  // 256 + 1 is not a bfloat16: rounding after each addition would give 256.
  std::vector<std::vector<BFloat16>> ones(5, std::vector<BFloat16>(3, BFloat16(1.0f)));
  ones[0].assign(3, BFloat16(256.0f));
  for (const BFloat16 sum : reduce(DType::kBF16, ReduceOp::kSum, ones)) {
    EXPECT_EQ(static_cast<float>(sum), 260.0f);
  }
}

TEST(Reduce, RoundsBfloat16LikeTheScalarConversion) {
  std::vector<BFloat16> a(65536), zero(65536, BFloat16(0.0f)), third(65536, BFloat16(1.0f / 3));
  for (std::size_t i = 0; i < a.size(); ++i) a[i].bits = static_cast<std::uint16_t>(i);
  const auto sums = reduce<BFloat16>(DType::kBF16, ReduceOp::kSum, {a, zero, third});
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float sum = static_cast<float>(a[i]) + static_cast<float>(third[i]);
    EXPECT_EQ(sums[i].bits, float_to_bf16(sum)) << i;
  }
}

TEST(Reduce, KeepsNans) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum, ReduceOp::kAvg}) {
    EXPECT_TRUE(std::isnan(reduce<float>(DType::kF32, op, {{nan}, {1.0f}, {2.0f}})[0]));
    EXPECT_TRUE(std::isnan(reduce<float>(DType::kF32, op, {{1.0f}, {nan}, {2.0f}})[0]));
    EXPECT_TRUE(std::isnan(reduce<float>(DType::kF32, op, {{1.0f}, {2.0f}, {nan}})[0]));
  }
}

TEST(Reduce, WrapsIntegersAndCutsTheirAverage) {
  constexpr auto kMax = std::numeric_limits<std::int32_t>::max();
  constexpr auto kMin = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(reduce<std::int32_t>(DType::kI32, ReduceOp::kSum, {{kMax}, {1}})[0], kMin);
  EXPECT_EQ(reduce<std::int64_t>(DType::kI64, ReduceOp::kAvg, {{-3}, {-4}})[0], -3);
  EXPECT_EQ(reduce<std::uint8_t>(DType::kU8, ReduceOp::kSum, {{200}, {100}})[0], 44);
}

TEST(Reduce, WritesEveryOutputAndNothingBeyond) {
  for (const std::int64_t n : {0, 1, 31, 32, 33, 1023, 1024, 1025, 3000}) {
    const auto size = static_cast<std::size_t>(n);
    std::vector<double> a(size + 1, 1.5), b(size + 1, 2.0), c(size + 1, -1.0);
    const std::array<const void*, 2> in{a.data(), b.data()};
    const std::array<void*, 2> out{a.data(), c.data()};  // The first one in place.
    reduce_ascending(DType::kF64, ReduceOp::kSum, in, out, n);
    for (std::size_t i = 0; i < size; ++i) {
      ASSERT_EQ(a[i], 3.5) << n << " " << i;
      ASSERT_EQ(c[i], 3.5) << n << " " << i;
    }
    EXPECT_EQ(a[size], 1.5);
    EXPECT_EQ(c[size], -1.0);
  }
}

}  // namespace
}  // namespace fourfold
