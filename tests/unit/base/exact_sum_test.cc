#include "base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace fourfold {
namespace {

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (double v : values) sum.add(v);
  return sum.value();
}

TEST(ExactSum, HoldsWhatDoublesLose) {
  EXPECT_EQ(sum_of({}), 0.0);
  EXPECT_EQ(sum_of({1e300, 1.0, -1e300}), 1.0);
  EXPECT_EQ(sum_of({1e308, 1e308, -1e308, -1e308, -3.5}), -3.5);
  const double least = std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(sum_of({least, least, 1.0, -1.0}), 2 * least);
  EXPECT_EQ(sum_of({-least}), -least);
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(sum_of({most, -least}), most);
  EXPECT_EQ(sum_of({most, most}), std::numeric_limits<double>::infinity());
  EXPECT_EQ(sum_of({-most, -most}), -std::numeric_limits<double>::infinity());
}

TEST(ExactSum, RoundsOnceToEven) {
  EXPECT_EQ(sum_of({1.0, 0x1p-53}), 1.0);                       // A tie, down to even.
  EXPECT_EQ(sum_of({1.0 + 0x1p-52, 0x1p-53}), 1.0 + 0x1p-51);   // A tie, up to even.
  EXPECT_EQ(sum_of({1.0, 0x1p-53, 0x1p-1074}), 1.0 + 0x1p-52);  // Just above the tie.
  EXPECT_EQ(sum_of({-1.0, -0x1p-53, -0x1p-1074}), -1.0 - 0x1p-52);
  EXPECT_EQ(sum_of({1.0 + 0x1p-52, 0x1p-53, -0x1p-200}), 1.0 + 0x1p-52);
}

// Integers of 128 bits as the oracle: terms m·2^e with small exponents are exact there.
TEST(ExactSum, EqualsBigIntegers) {
  __extension__ typedef __int128 Wide;
  std::mt19937_64 engine(1);
  for (int round = 0; round < 200; ++round) {
    ExactSum sum;
    Wide exact = 0;
    for (int i = 0; i < 50; ++i) {
      const auto m = static_cast<std::int64_t>(engine() >> 12) * (engine() % 2 == 0 ? 1 : -1);
      const int e = static_cast<int>(engine() % 60);
      sum.add(std::ldexp(static_cast<double>(m), e - 30));
      exact += static_cast<Wide>(m) << e;
    }
    // Conversion of __int128 to double rounds to nearest even.
    EXPECT_EQ(sum.value(), std::ldexp(static_cast<double>(exact), -30));
  }
}

TEST(ExactSum, AnyOrderAndGroupingGivesTheSameBits) {
  std::mt19937_64 engine(2);
  std::vector<double> values;
  while (values.size() < 3000) {
    const auto v = std::bit_cast<double>(engine());
    if (std::isfinite(v)) values.push_back(v);
  }
  ExactSum whole;
  for (double v : values) whole.add(v);
  whole.normalise();
  for (int round = 0; round < 5; ++round) {
    std::shuffle(values.begin(), values.end(), engine);
    ExactSum parts[7];
    for (std::size_t i = 0; i < values.size(); ++i) parts[i % 7].add(values[i]);
    ExactSum merged;
    for (const ExactSum& part : parts) merged.merge(part);
    merged.normalise();
    EXPECT_EQ(merged.words(), whole.words());
  }
}

// As many ranks as are promised, each with the largest digits after a carry.
TEST(ExactSum, DigitsOfAMillionRanksFit) {
  ExactSum one;
  for (int i = 0; i < 1000; ++i) one.add(std::numeric_limits<double>::max() / 2048);
  one.normalise();
  for (int i = 0; i < ExactSum::kDigits; ++i) {
    ASSERT_LE(std::abs(one.words()[i]), std::int64_t{1} << 39);
  }
  ExactSum all;
  for (int i = 0; i < ExactSum::kWords; ++i) all.words()[i] = one.words()[i] << 20;
  const double whole = one.value();
  EXPECT_EQ(all.value(), std::isinf(whole * 0x1p20) ? INFINITY : whole * 0x1p20);
  ExactSum small;
  small.add(-1.75);
  small.normalise();
  for (int i = 0; i < ExactSum::kWords; ++i) all.words()[i] = small.words()[i] << 20;
  EXPECT_EQ(all.value(), -1.75 * 0x1p20);
}

TEST(ExactSum, CountsWhatIsNotFinite) {
  ExactSum sum;
  sum.add(NAN);
  sum.add(2.0);
  sum.add(-INFINITY);
  EXPECT_EQ(sum.non_finite(), 2);
  EXPECT_EQ(sum.value(), 2.0);
}

}  // namespace
}  // namespace fourfold
