#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace fourfold {

/// The value of an IEEE 754 half-precision number, given by its bits; every one is a float.
inline float half_to_float(std::uint16_t bits) {
  constexpr int kFractionBits = 10, kExponentBias = 15, kFloatFractionBits = 23;
  constexpr std::uint32_t kFloatExponent = 0x7f800000u;
  const std::uint32_t sign = static_cast<std::uint32_t>(bits >> 15) << 31;
  const int exponent = (bits >> kFractionBits) & 0x1f;
  const std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0x1f) {  // Infinity, or NaN with its payload.
    return std::bit_cast<float>(sign | kFloatExponent |
                                (fraction << (kFloatFractionBits - kFractionBits)));
  }
  // Subnormals have no hidden bit and the exponent of the smallest normal number.
  const auto whole = static_cast<float>(exponent == 0 ? fraction : fraction | 0x400u);
  const int power = (exponent == 0 ? 1 : exponent) - kExponentBias - kFractionBits;
  const float magnitude = std::ldexp(whole, power);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
}

}  // namespace fourfold
