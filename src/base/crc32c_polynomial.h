#pragma once

#include <cstdint>

// Polynomials over GF(2) of degree below 32, modulo that of CRC-32C, the coefficient of x^0 in the
// highest bit: the order of bits in which a reflected CRC holds its remainder.

namespace fourfold::crc32c_detail {

inline constexpr std::uint32_t kOne = 0x80000000u;
inline constexpr std::uint32_t kPolynomial = 0x82F63B78u;

constexpr std::uint32_t times_x(std::uint32_t p) { return (p >> 1) ^ (kPolynomial & -(p & 1u)); }

/// a·b. Without a branch: the bits of a remainder are as good as random.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (int bit = 31; bit >= 0; --bit) {
    product ^= b & -((a >> bit) & 1u);
    b = times_x(b);
  }
  return product;
}

/// x^(8·bytes): what that many bytes of zeros behind a message multiply its remainder by.
constexpr std::uint32_t shift_by(std::uint64_t bytes) {
  std::uint32_t square = kOne;  // x^8, then its squares.
  for (int i = 0; i < 8; ++i) square = times_x(square);
  std::uint32_t power = kOne;
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1u) != 0) power = multiply(power, square);
    square = multiply(square, square);
  }
  return power;
}

}  // namespace fourfold::crc32c_detail
