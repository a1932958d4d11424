#include "kernels/exact_sum.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

// Any finite float bits: exponents from the denormals to the largest.
std::vector<float> wild_floats(std::int64_t n, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> values;
  while (static_cast<std::int64_t>(values.size()) < n) {
    const auto f = std::bit_cast<float>(static_cast<std::uint32_t>(engine()));
    if (std::isfinite(f)) values.push_back(f);
  }
  return values;
}

ExactSum squares_one_by_one(const std::vector<float>& values) {
  ExactSum sum;
  for (float f : values) sum.add(static_cast<double>(f) * f);
  sum.normalise();
  return sum;
}

TEST(ExactSumKernel, EqualsTheScalarSumForWildExponents) {
  for (std::int64_t n : {0, 1, 17, 1023, 1024, 1025, 5000}) {
    const auto values = wild_floats(n, static_cast<std::uint32_t>(n));
    ExactSum sum;
    add_squares(values.data(), n, sum);
    EXPECT_EQ(sum.words(), squares_one_by_one(values).words()) << n;
    ExactSum plain, plain_ref;
    add_values(values.data(), n, plain);
    for (float f : values) plain_ref.add(f);
    plain_ref.normalise();
    EXPECT_EQ(plain.words(), plain_ref.words()) << n;
  }
}

TEST(ExactSumKernel, OrdinaryGradientsAndZeros) {
  auto values = random_values<float>(30000, 3, 1e-3f);
  for (std::size_t i = 0; i < values.size(); i += 3) values[i] = 0;
  ExactSum sum;
  add_squares(values.data(), 30000, sum);
  EXPECT_EQ(sum.words(), squares_one_by_one(values).words());
  long double expected = 0;
  for (float f : values) expected += static_cast<long double>(f) * f;
  EXPECT_NEAR(sum.value(), static_cast<double>(expected), 1e-15);
}

TEST(ExactSumKernel, OrderAndSplitsDontChangeABit) {
  auto values = wild_floats(4001, 8);
  ExactSum whole;
  add_squares(values.data(), 4001, whole);
  std::shuffle(values.begin(), values.end(), std::mt19937(5));
  ExactSum parts;
  for (std::int64_t begin = 0; begin < 4001; begin += 700) {
    ExactSum part;
    add_squares(values.data() + begin, std::min<std::int64_t>(700, 4001 - begin), part);
    for (int i = 0; i < ExactSum::kWords; ++i) parts.words()[i] += part.words()[i];
  }
  parts.normalise();
  EXPECT_EQ(whole.words(), parts.words());
  EXPECT_EQ(whole.value(), parts.value());
}

TEST(ExactSumKernel, CountsWhatIsNotFinite) {
  std::vector<float> values(3000, 2.0f);
  values[5] = std::numeric_limits<float>::infinity();
  values[1500] = -std::numeric_limits<float>::infinity();
  values[2999] = std::nanf("");
  ExactSum sum;
  add_squares(values.data(), 3000, sum);
  EXPECT_EQ(sum.non_finite(), 3);
  EXPECT_EQ(sum.value(), 4.0 * 2997);
}

TEST(ExactSumKernel, TakesBfloat16) {
  const auto values = random_values<BFloat16>(777, 4);
  std::vector<float> floats;
  for (BFloat16 v : values) floats.push_back(static_cast<float>(v));
  ExactSum sum;
  add_squares(values.data(), 777, sum);
  EXPECT_EQ(sum.words(), squares_one_by_one(floats).words());
}

}  // namespace
}  // namespace fourfold::kernels
