#include "kernels/random.h"

#include <algorithm>

#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

// Box and Muller in double from the words that the header names.
double reference(std::int64_t i, PhiloxKey key, std::uint32_t id, double std) {
  const auto group = static_cast<std::uint64_t>(i / 4);
  const PhiloxCounter words = philox4x32(
      {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32), id, 0}, key);
  const std::uint32_t radius = words[i % 4 / 2 * 2], angle = words[i % 4 / 2 * 2 + 1];
  const double u = (static_cast<double>(radius >> 1) + 0.5) * 0x1p-31;
  const double x = ((angle & 0x3fffffff) * 0x1p-30 - 0.5 + (angle >> 30)) * M_PI / 2;
  return std * std::sqrt(-2 * std::log(u)) * (i % 2 == 0 ? std::cos(x) : std::sin(x));
}

TEST(FillNormal, MatchesBoxMullerInDouble) {
  const std::int64_t size = std::int64_t{1} << 40, first = (std::int64_t{1} << 35) - 50;
  std::vector<float> out(1001);
  const BoxDim box{first, first + 1001, size};
  fill_normal(out.data(), {&box, 1}, {5, 6}, 77, 0.02f);
  std::vector<double> expected;
  for (std::int64_t i = 0; i < 1001; ++i) {
    expected.push_back(reference(first + i, {5, 6}, 77, 0.02f) / 0.02);
  }
  for (float& x : out) x /= 0.02f;
  expect_near(out, expected, 2e-5, "normal");
}

TEST(FillNormal, EveryBoxHoldsTheBitsOfTheWhole) {
  const std::int64_t shape[3] = {5, 7, 13};
  std::vector<float> whole(5 * 7 * 13);
  const BoxDim all[3] = {{0, 5, 5}, {0, 7, 7}, {0, 13, 13}};
  fill_normal(whole.data(), all, {1, 2}, 3, 1.0f);
  std::mt19937 engine(4);
  for (int round = 0; round < 200; ++round) {
    BoxDim box[3];
    std::int64_t n = 1;
    for (int d = 0; d < 3; ++d) {
      const auto a = static_cast<std::int64_t>(engine() % (shape[d] + 1));
      const auto b = static_cast<std::int64_t>(engine() % (shape[d] + 1));
      box[d] = {std::min(a, b), std::max(a, b), shape[d]};
      if (round % 3 == d) box[d] = {0, shape[d], shape[d]};
      n *= box[d].end - box[d].begin;
    }
    std::vector<float> part(n + 1, -99.0f);
    fill_normal(part.data(), box, {1, 2}, 3, 1.0f);
    std::int64_t at = 0;
    for (std::int64_t i = box[0].begin; i < box[0].end; ++i) {
      for (std::int64_t j = box[1].begin; j < box[1].end; ++j) {
        for (std::int64_t k = box[2].begin; k < box[2].end; ++k) {
          ASSERT_EQ(part[at++], whole[(i * 7 + j) * 13 + k]);
        }
      }
    }
    EXPECT_EQ(part[n], -99.0f) << "wrote beyond the box";
  }
}

TEST(FillNormal, IsNormal) {
  const std::int64_t n = 1 << 21;
  std::vector<float> z(n);
  const BoxDim box{0, n, n};
  fill_normal(z.data(), {&box, 1}, {9, 1}, 2, 1.0f);
  double mean = 0, var = 0, fourth = 0, neighbours = 0;
  for (float x : z) mean += x / static_cast<double>(n);
  for (std::int64_t i = 0; i < n; ++i) {
    const double d = z[i] - mean;
    var += d * d / static_cast<double>(n);
    fourth += d * d * d * d / static_cast<double>(n);
    neighbours += z[i] * z[(i + 1) % n] / static_cast<double>(n);
  }
  // Four standard errors each: 1, sqrt 2, sqrt 24 and 1 over sqrt n.
  const double se = 4 / std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(mean, 0, se);
  EXPECT_NEAR(var, 1, se * std::sqrt(2));
  EXPECT_NEAR(fourth / (var * var), 3, se * std::sqrt(24));
  EXPECT_NEAR(neighbours, 0, se);
  std::sort(z.begin(), z.end());
  double ks = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double cdf = 0.5 * std::erfc(-z[i] / std::sqrt(2));
    ks = std::max(ks, std::abs(cdf - (static_cast<double>(i) + 0.5) / static_cast<double>(n)));
  }
  EXPECT_LT(ks, 1.95 / std::sqrt(static_cast<double>(n)));  // Chance 0.1 % (Kolmogorov, Smirnov).
  EXPECT_LT(z.front(), -4.5f);
  EXPECT_GT(z.back(), 4.5f);
}

TEST(FillNormal, TensorsAndKeysDiffer) {
  std::vector<float> a(64), b(64), c(64);
  const BoxDim box{0, 64, 64};
  fill_normal(a.data(), {&box, 1}, {1, 1}, 1, 1.0f);
  fill_normal(b.data(), {&box, 1}, {1, 1}, 2, 1.0f);
  fill_normal(c.data(), {&box, 1}, {1, 2}, 1, 1.0f);
  for (int i = 0; i < 64; ++i) {
    EXPECT_NE(a[i], b[i]);
    EXPECT_NE(a[i], c[i]);
  }
}

}  // namespace
}  // namespace fourfold::kernels
