#include "kernels/rows.h"

#include <algorithm>
#include <numeric>

#include "device/intra_op_threads.h"
#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

std::vector<std::int32_t> shuffled(std::int64_t n, std::uint32_t seed) {
  std::vector<std::int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 engine(seed);
  std::shuffle(order.begin(), order.end(), engine);
  return order;
}

// Rows of bytes: any element type, any width; enough of them for threads in the last case.
TEST(Rows, AreGatheredAndScatteredByIndex) {
  for (std::int64_t row_bytes : {1, 6, 64, 4098}) {
    const std::int64_t count = 97;
    const auto index = shuffled(count, 1);
    const auto words = random_values<float>(count * row_bytes / 4 + 1, 2);
    const auto* from = reinterpret_cast<const unsigned char*>(words.data());
    std::vector<unsigned char> gathered(count * row_bytes), scattered(count * row_bytes);
    gather_rows(from, row_bytes, index.data(), count, gathered.data());
    scatter_rows(from, row_bytes, index.data(), count, scattered.data());
    for (std::int64_t i = 0; i < count * row_bytes; ++i) {
      const std::int64_t row = i / row_bytes, at = i % row_bytes, other = index[row] * row_bytes;
      ASSERT_EQ(gathered[i], from[other + at]) << i;
      ASSERT_EQ(scattered[other + at], from[i]) << i;
    }
  }
}

TEST(Rows, ScatterLeavesTheOthersAndGatherRepeats) {
  const std::vector<float> from{1, 2, 3};
  const std::vector<std::int32_t> index{4, 0, 2}, again{1, 1, 0, 2, 1};
  std::vector<float> to{9, 9, 9, 9, 9};
  scatter_rows(from.data(), sizeof(float), index.data(), 3, to.data());
  EXPECT_EQ(to, (std::vector<float>{2, 9, 3, 9, 1}));
  gather_rows(from.data(), sizeof(float), again.data(), 5, to.data());
  EXPECT_EQ(to, (std::vector<float>{2, 2, 1, 3, 2}));
  gather_rows(nullptr, sizeof(float), nullptr, 0, nullptr);
}

template <class T>
class SumRowsTest : public ::testing::Test {};
TYPED_TEST_SUITE(SumRowsTest, ElementTypes);

TYPED_TEST(SumRowsTest, AddsInOrderAndRoundsOnce) {
  using T = TypeParam;
  const std::int64_t in_rows = 13, out_rows = 11;
  for (std::int64_t cols : kAwkward) {
    for (int per_row : {1, 2, 8}) {
      const auto rows = random_values<T>(in_rows * cols, 1);
      std::vector<std::int32_t> index(out_rows * per_row);
      std::mt19937 engine(2);
      for (auto& i : index) i = static_cast<std::int32_t>(engine() % (in_rows + 4)) - 4;
      std::fill_n(index.begin() + per_row, per_row, -1);  // Row 1 gets nothing.
      std::vector<T> out(out_rows * cols, T(7.0f)), expected;
      sum_rows(rows.data(), cols, index.data(), out_rows, per_row, out.data());
      for (std::int64_t i = 0; i < out_rows * cols; ++i) {
        float total = 0;
        for (int j = 0; j < per_row; ++j) {
          const std::int32_t row = index[i / cols * per_row + j];
          if (row >= 0) total += static_cast<float>(rows[row * cols + i % cols]);
        }
        expected.push_back(T(total));
      }
      EXPECT_TRUE(same_bits(out, expected)) << cols << " columns, " << per_row << " a row";
    }
  }
}

TYPED_TEST(SumRowsTest, BitsDontDependOnTheThreads) {
  using T = TypeParam;
  const std::int64_t rows = 701, cols = 130;
  const auto in = random_values<T>(rows * cols, 1);
  auto index = shuffled(rows, 1);
  const auto second = shuffled(rows, 2);
  index.insert(index.end(), second.begin(), second.end());
  const int threads = intra_op_threads();
  std::vector<T> out[2];
  for (int i : {0, 1}) {
    set_intra_op_threads(1 + 2 * i);
    out[i].resize(in.size());
    sum_rows(in.data(), cols, index.data(), rows, 2, out[i].data());
  }
  set_intra_op_threads(threads);
  EXPECT_TRUE(same_bits(out[0], out[1]));
}

}  // namespace
}  // namespace fourfold::kernels
