#include "kernels/elementwise.h"

#include <bit>

#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

template <class T>
class ElementwiseTest : public ::testing::Test {};
TYPED_TEST_SUITE(ElementwiseTest, ElementTypes);

TYPED_TEST(ElementwiseTest, PassesAndColumnSums) {
  using T = TypeParam;
  const std::int64_t rows = 6;
  for (std::int64_t cols : kAwkward) {
    const std::int64_t n = rows * cols;
    const auto a = random_values<T>(n, 1), b = random_values<T>(n, 2);
    const auto bias = random_values<float>(cols, 3);
    std::vector<T> sum(n), scaled = a, biased = a;
    std::vector<float> total(n, 1.0f), sums(cols, 2.0f);
    add(a.data(), b.data(), sum.data(), n);
    scale(scaled.data(), 0.3f, n);
    add_bias(biased.data(), bias.data(), rows, cols);
    accumulate(total.data(), a.data(), n);
    column_sums(a.data(), rows, cols, sums.data());
    std::vector<double> sum_ref, scaled_ref, biased_ref, total_ref, sums_ref(cols, 2.0);
    for (std::int64_t i = 0; i < n; ++i) {
      sum_ref.push_back(value_of(a[i]) + value_of(b[i]));
      scaled_ref.push_back(value_of(a[i]) * 0.3);
      biased_ref.push_back(value_of(a[i]) + bias[i % cols]);
      total_ref.push_back(1 + value_of(a[i]));
      sums_ref[i % cols] += value_of(a[i]);
    }
    expect_near(sum, sum_ref, kTolerance<T>, "sum");
    expect_near(scaled, scaled_ref, kTolerance<T>, "scaled");
    expect_near(biased, biased_ref, kTolerance<T>, "biased");
    expect_near(total, total_ref, 1e-6, "total");
    expect_near(sums, sums_ref, 1e-6, "column sums");
  }
}

TYPED_TEST(ElementwiseTest, ABiasScaledByRowMatchesTheFormulas) {
  using T = TypeParam;
  const std::int64_t rows = 5;
  for (std::int64_t cols : kAwkward) {
    const auto x = random_values<T>(rows * cols, 1), dy = random_values<T>(rows * cols, 2);
    const auto bias = random_values<float>(cols, 3), w = random_values<float>(rows, 4);
    auto y = x;
    std::vector<float> dbias(cols, 2.0f), dw(rows, 9.0f);
    add_scaled_bias(y.data(), bias.data(), w.data(), rows, cols);
    scaled_bias_backward(dy.data(), bias.data(), w.data(), rows, cols, dbias.data(), dw.data());
    std::vector<double> y_ref, dbias_ref(cols, 2.0), dw_ref(rows, 0.0);
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      y_ref.push_back(value_of(x[i]) + double{w[i / cols]} * bias[i % cols]);
      dbias_ref[i % cols] += double{w[i / cols]} * value_of(dy[i]);
      dw_ref[i / cols] += double{bias[i % cols]} * value_of(dy[i]);
    }
    expect_near(y, y_ref, kTolerance<T>, "y");
    expect_near(dbias, dbias_ref, 2e-5, "dbias");
    expect_near(dw, dw_ref, 2e-5, "dw");
  }
}

TEST(Cast, RoundsLikeTheScalarForAllKindsOfBits) {
  std::vector<float> floats;
  for (std::uint32_t high = 0; high < 1u << 16; high += 7) {
    for (std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      floats.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  const auto n = static_cast<std::int64_t>(floats.size());
  std::vector<BFloat16> narrow(floats.size());
  std::vector<float> wide(floats.size());
  cast(floats.data(), narrow.data(), n);
  cast(narrow.data(), wide.data(), n);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    ASSERT_EQ(narrow[i].bits, float_to_bf16(floats[i])) << std::bit_cast<std::uint32_t>(floats[i]);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::uint32_t{narrow[i].bits} << 16);
  }
}

}  // namespace
}  // namespace fourfold::kernels
