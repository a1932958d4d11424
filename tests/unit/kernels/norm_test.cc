#include "kernels/norm.h"

#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

constexpr std::int64_t kRows = 5;
constexpr float kEps = 1e-5f;

template <class T>
struct Problem {
  explicit Problem(std::int64_t n)
      : cols(n),
        x(random_values<T>(kRows * n, 1)),
        dy(random_values<T>(kRows * n, 2)),
        residual(random_values<T>(kRows * n, 3)),
        gain(random_values<float>(n, 4)),
        bias(random_values<float>(n, 5)) {
    for (T& value : x) value = T(static_cast<float>(value) + 3.0f);  // A mean that matters.
  }
  std::int64_t cols;
  std::vector<T> x, dy, residual;
  std::vector<float> gain, bias;
};

// The textbook formulas in double.
struct Reference {
  std::vector<double> y, dx, dgain, dbias, mean, m2;

  template <class T>
  Reference(const Problem<T>& p, bool centred, bool with_residual) {
    const auto n = static_cast<double>(p.cols);
    dgain.assign(p.gain.size(), 0.25);
    dbias.assign(p.gain.size(), 0.5);
    for (std::int64_t row = 0; row < kRows; ++row) {
      auto x = [&](std::int64_t i) { return value_of(p.x[row * p.cols + i]); };
      double mu = 0, squares = 0, sum_g = 0, sum_gx = 0;
      for (std::int64_t i = 0; i < p.cols; ++i) mu += centred ? x(i) / n : 0;
      for (std::int64_t i = 0; i < p.cols; ++i) squares += (x(i) - mu) * (x(i) - mu);
      const double rstd = 1 / std::sqrt(squares / n + kEps);
      mean.push_back(mu);
      m2.push_back(squares);
      for (std::int64_t i = 0; i < p.cols; ++i) {
        const double xhat = (x(i) - mu) * rstd, dy = value_of(p.dy[row * p.cols + i]);
        y.push_back(xhat * p.gain[i] + (centred ? p.bias[i] : 0));
        sum_g += dy * p.gain[i];
        sum_gx += dy * p.gain[i] * xhat;
        dgain[i] += dy * xhat;
        dbias[i] += dy;
      }
      for (std::int64_t i = 0; i < p.cols; ++i) {
        const double xhat = (x(i) - mu) * rstd, dy = value_of(p.dy[row * p.cols + i]);
        dx.push_back(rstd * (dy * p.gain[i] - ((centred ? sum_g : 0) + xhat * sum_gx) / n) +
                     (with_residual ? value_of(p.residual[row * p.cols + i]) : 0));
      }
    }
  }
};

template <class T>
class NormTest : public ::testing::Test {};
TYPED_TEST_SUITE(NormTest, ElementTypes);

TYPED_TEST(NormTest, FusedFormsMatchTheFormulas) {
  using T = TypeParam;
  for (std::int64_t cols : kAwkward) {
    for (bool centred : {false, true}) {
      const Problem<T> p(cols);
      const Reference expected(p, centred, true);
      std::vector<T> y(p.x.size()), dx(p.x.size());
      std::vector<float> mean(kRows), rstd(kRows), dgain(cols, 0.25f), dbias(cols, 0.5f);
      if (centred) {
        layer_norm_forward(p.x.data(), p.gain.data(), p.bias.data(), kEps, kRows, cols, y.data(),
                           mean.data(), rstd.data());
      } else {
        rms_norm_forward(p.x.data(), p.gain.data(), kEps, kRows, cols, y.data(), rstd.data());
      }
      norm_backward(p.dy.data(), p.x.data(), centred ? mean.data() : nullptr, rstd.data(),
                    p.gain.data(), p.residual.data(), kRows, cols, dx.data(), dgain.data(),
                    dbias.data());
      // A row of one or two columns has a variance near 0: its rstd is large.
      const double slack = centred && cols < 8 ? 200 : 4;
      expect_near(y, expected.y, slack * kTolerance<T>, "y");
      expect_near(dx, expected.dx, slack * kTolerance<T>, "dx");
      expect_near(dgain, expected.dgain, slack * 2e-5, "dgain");
      expect_near(dbias, expected.dbias, 2e-5, "dbias");
    }
  }
}

TYPED_TEST(NormTest, StagesOnOneRankGiveTheBitsOfTheFusedForms) {
  using T = TypeParam;
  const std::int64_t cols = 77;
  const Problem<T> p(cols);
  for (bool centred : {false, true}) {
    std::vector<T> y(p.x.size()), y2(p.x.size()), dx(p.x.size()), dx2(p.x.size());
    std::vector<float> mean(kRows), rstd(kRows), mean2(kRows), rstd2(kRows);
    std::vector<float> dgain(cols), dgain2(cols), s1(kRows), s2(kRows);
    if (centred) {
      layer_norm_forward(p.x.data(), p.gain.data(), p.bias.data(), kEps, kRows, cols, y.data(),
                         mean.data(), rstd.data());
      row_mean_m2(p.x.data(), kRows, cols, mean2.data(), rstd2.data());
    } else {
      rms_norm_forward(p.x.data(), p.gain.data(), kEps, kRows, cols, y.data(), rstd.data());
      rms_sum_squares(p.x.data(), kRows, cols, rstd2.data());
    }
    rstd_from_sum(rstd2.data(), kRows, cols, kEps, rstd2.data());
    const float* mean_or_null = centred ? mean2.data() : nullptr;
    norm_apply(p.x.data(), mean_or_null, rstd2.data(), p.gain.data(),
               centred ? p.bias.data() : nullptr, kRows, cols, y2.data());
    norm_backward<T>(p.dy.data(), p.x.data(), mean_or_null, rstd.data(), p.gain.data(), nullptr,
                     kRows, cols, dx.data(), dgain.data(), nullptr);
    norm_backward_sums(p.dy.data(), p.x.data(), mean_or_null, rstd2.data(), p.gain.data(), kRows,
                       cols, s1.data(), s2.data());
    norm_backward_apply<T>(p.dy.data(), p.x.data(), mean_or_null, rstd2.data(), p.gain.data(),
                           s1.data(), s2.data(), cols, nullptr, kRows, cols, dx2.data(),
                           dgain2.data(), nullptr);
    EXPECT_TRUE(same_bits(y, y2));
    EXPECT_TRUE(same_bits(dx, dx2));
    EXPECT_TRUE(same_bits(dgain, dgain2));
  }
}

// Columns over three uneven ranks, one of them empty, statistics merged between the stages.
TYPED_TEST(NormTest, SplitColumnsGiveTheWholeRowsNorm) {
  using T = TypeParam;
  const std::int64_t cols = 77;
  const Problem<T> p(cols);
  const Reference expected(p, true, true);
  const std::vector<std::int64_t> counts{50, 0, 27};
  std::vector<float> stats(3 * 2 * kRows), mean(kRows), rstd(kRows);
  auto part = [&](const std::vector<T>& of, std::int64_t begin, std::int64_t n) {
    std::vector<T> block;
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (std::int64_t i = 0; i < n; ++i) block.push_back(of[row * cols + begin + i]);
    }
    return block;
  };
  std::int64_t begin = 0;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const auto x = part(p.x, begin, counts[rank]);
    float* own = stats.data() + rank * 2 * kRows;
    row_mean_m2(x.data(), kRows, counts[rank], own, own + kRows);
    begin += counts[rank];
  }
  merge_mean_m2(stats.data(), stats.data() + kRows, counts.data(), 3, 2 * kRows, kRows, mean.data(),
                rstd.data());
  expect_near(mean, expected.mean, 1e-5, "mean");
  expect_near(rstd, expected.m2, 1e-4, "M2");
  rstd_from_sum(rstd.data(), kRows, cols, kEps, rstd.data());
  std::vector<float> sum_g(kRows, 0.0f), sum_gx(kRows, 0.0f);
  for (int stage = 0; stage < 2; ++stage) {
    begin = 0;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      const std::int64_t n = counts[rank];
      const auto x = part(p.x, begin, n), dy = part(p.dy, begin, n);
      auto residual = part(p.residual, begin, n);
      const float* gain = p.gain.data() + begin;
      if (stage == 0) {
        std::vector<float> s1(kRows), s2(kRows);
        norm_backward_sums(dy.data(), x.data(), mean.data(), rstd.data(), gain, kRows, n, s1.data(),
                           s2.data());
        for (std::int64_t r = 0; r < kRows; ++r) sum_g[r] += s1[r], sum_gx[r] += s2[r];
      } else {  // In place of the residual's gradient.
        norm_backward_apply<T>(dy.data(), x.data(), mean.data(), rstd.data(), gain, sum_g.data(),
                               sum_gx.data(), cols, residual.data(), kRows, n, residual.data(),
                               nullptr, nullptr);
        std::vector<double> wanted;
        for (std::int64_t row = 0; row < kRows; ++row) {
          for (std::int64_t i = 0; i < n; ++i) {
            wanted.push_back(expected.dx[row * cols + begin + i]);
          }
        }
        expect_near(residual, wanted, 4 * kTolerance<T>, "dx");
      }
      begin += n;
    }
  }
}

}  // namespace
}  // namespace fourfold::kernels
