#include "kernels/qk_norm.h"

#include "kernels/norm.h"
#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

constexpr float kEps = 1e-5f;
// A fused row: what comes before the normed columns, they, what follows.
constexpr std::int64_t kRows = 7, kBefore = 5, kAfter = 6;

/// The normed columns of a buffer as the rows of a dense matrix [rows·groups, width].
template <class T>
std::vector<T> dense(const std::vector<T>& buffer, const QkColumns& c, std::int64_t stride,
                     std::int64_t first) {
  std::vector<T> rows;
  for (std::int64_t row = 0; row < c.rows; ++row) {
    const auto begin = buffer.begin() + row * stride + first;
    rows.insert(rows.end(), begin, begin + c.groups * c.width);
  }
  return rows;
}

template <class T>
class QkNormTest : public ::testing::Test {};
TYPED_TEST_SUITE(QkNormTest, ElementTypes);

// norm_test.cc holds those against the formulas.
TYPED_TEST(QkNormTest, IsTheNormOfTheSameRowsInADenseMatrix) {
  using T = TypeParam;
  for (const std::int64_t width : kAwkward) {
    for (const std::int64_t groups : {1, 3}) {
      const std::int64_t cols = groups * width, fused = kBefore + cols + kAfter;
      const QkColumns c{kRows, groups, width, fused, cols + 2};
      const auto x = random_values<T>(kRows * c.dense_stride, 1);
      const auto gain = random_values<float>(width, 2);
      const auto before = random_values<T>(kRows * fused, 3);
      const std::int64_t n = kRows * groups;
      const auto x_rows = dense(x, c, c.dense_stride, 0),
                 dy_rows = dense(before, c, fused, kBefore);

      std::vector<T> y(n * width), dx(n * width);
      std::vector<float> rstd(n), d_gain(width, 0.5f), sums(n);
      rms_norm_forward(x_rows.data(), gain.data(), kEps, n, width, y.data(), rstd.data());
      norm_backward<T>(dy_rows.data(), x_rows.data(), nullptr, rstd.data(), gain.data(), nullptr, n,
                       width, dx.data(), d_gain.data(), nullptr);

      for (const bool staged : {false, true}) {
        std::vector<T> out = before, d = before;
        std::vector<float> own_rstd(n), own_gain(width, 0.5f);
        if (staged) {
          qk_sum_squares(x.data(), c, own_rstd.data());
          rstd_from_sum(own_rstd.data(), n, width, kEps, own_rstd.data());
          qk_norm_apply(x.data(), c, own_rstd.data(), gain.data(), out.data() + kBefore);
          qk_norm_backward_sums(d.data() + kBefore, x.data(), c, own_rstd.data(), gain.data(),
                                sums.data());
          qk_norm_backward_apply(d.data() + kBefore, x.data(), c, own_rstd.data(), gain.data(),
                                 sums.data(), width, own_gain.data());
        } else {
          qk_norm_forward(x.data(), c, gain.data(), kEps, out.data() + kBefore, own_rstd.data());
          qk_norm_backward(d.data() + kBefore, x.data(), c, own_rstd.data(), gain.data(),
                           own_gain.data());
        }
        EXPECT_TRUE(same_bits(own_rstd, rstd));
        EXPECT_TRUE(same_bits(dense(out, c, fused, kBefore), y));
        EXPECT_TRUE(same_bits(dense(d, c, fused, kBefore), dx));
        EXPECT_TRUE(same_bits(own_gain, d_gain));
        for (const std::int64_t other : {std::int64_t{0}, kBefore + cols}) {
          const QkColumns untouched{kRows, 1, other == 0 ? kBefore : kAfter};
          EXPECT_TRUE(same_bits(dense(out, untouched, fused, other),
                                dense(before, untouched, fused, other)));
          EXPECT_TRUE(
              same_bits(dense(d, untouched, fused, other), dense(before, untouched, fused, other)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace fourfold::kernels
