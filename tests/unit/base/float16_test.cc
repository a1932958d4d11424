#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fourfold {
namespace {

TEST(Float16, KnownValues) {
  EXPECT_EQ(half_to_float(0x3c00), 1.0f);
  EXPECT_EQ(half_to_float(0xc000), -2.0f);
  EXPECT_EQ(half_to_float(0x3555), 0.333251953125f);
  EXPECT_EQ(half_to_float(0x7bff), 65504.0f);
  EXPECT_EQ(half_to_float(0x0400), std::ldexp(1.0f, -14));     // The least normal number.
  EXPECT_EQ(half_to_float(0x03ff), std::ldexp(1023.0f, -24));  // The largest subnormal one.
  EXPECT_EQ(half_to_float(0x0001), std::ldexp(1.0f, -24));
  EXPECT_TRUE(std::signbit(half_to_float(0x8000)));
  EXPECT_EQ(half_to_float(0x8000), 0.0f);
  EXPECT_EQ(half_to_float(0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(half_to_float(0x7e01)));
}

TEST(Float16, GrowsWithItsBits) {
  for (std::uint16_t bits = 0; bits < 0x7c00; ++bits) {
    ASSERT_LT(half_to_float(bits), half_to_float(static_cast<std::uint16_t>(bits + 1))) << bits;
  }
}

}  // namespace
}  // namespace fourfold
