#include "kernels/rotary.h"

#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

template <class T>
class RotaryTest : public ::testing::Test {};
TYPED_TEST_SUITE(RotaryTest, ElementTypes);

TYPED_TEST(RotaryTest, TurnsHalfSplitPairsAndBack) {
  using T = TypeParam;
  const std::int64_t rows = 7, seq = 3, heads = 3, first = 2;
  for (std::int64_t dim : {2, 6, 16, 64, 80}) {
    const std::int64_t stride = heads * dim + 5;  // The v part that must not change.
    const auto before = random_values<T>(rows * stride, 1);
    auto x = before;
    const auto table = rotary_table(first + seq, dim, 1e4);
    rotary(x.data(), rows, stride, heads, dim, seq, first, table.data(), false);
    std::vector<double> expected;
    for (const T& v : before) expected.push_back(value_of(v));
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t i = 0; i < dim / 2; ++i) {
          const double angle = static_cast<double>(first + r % seq) *
                               std::pow(1e4, -2.0 * static_cast<double>(i) / dim);
          const std::int64_t at = r * stride + h * dim + i;
          const double a = value_of(before[at]), b = value_of(before[at + dim / 2]);
          expected[at] = a * std::cos(angle) - b * std::sin(angle);
          expected[at + dim / 2] = b * std::cos(angle) + a * std::sin(angle);
        }
      }
    }
    expect_near(x, expected, kTolerance<T>, "turned");
    rotary(x.data(), rows, stride, heads, dim, seq, first, table.data(), true);
    std::vector<double> original;
    for (const T& v : before) original.push_back(value_of(v));
    expect_near(x, original, 2 * kTolerance<T>, "turned back");
  }
}

}  // namespace
}  // namespace fourfold::kernels
