#include "base/crc32c_combine.h"

namespace fourfold {
namespace {

/// Polynomials over GF(2) of degree below 32, the coefficient of x^0 in the highest bit: the order
/// of bits in which a reflected CRC holds its remainder.
constexpr std::uint32_t kOne = 0x80000000u;
constexpr std::uint32_t kPolynomial = 0x82F63B78u;

std::uint32_t times_x(std::uint32_t p) { return (p >> 1) ^ ((p & 1u) != 0 ? kPolynomial : 0u); }

/// a·b modulo the CRC's polynomial.
std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = times_x(b);
  }
  return product;
}

/// x^(8·bytes): what that many bytes of zeros behind a message multiply its remainder by.
std::uint32_t shift_by(std::uint64_t bytes) {
  std::uint32_t square = kOne;  // x^8, then its squares.
  for (int i = 0; i < 8; ++i) square = times_x(square);
  std::uint32_t power = kOne;
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1u) != 0) power = multiply(power, square);
    square = multiply(square, square);
  }
  return power;
}

}  // namespace

std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_size) {
  // The inversions before and after a CRC cancel out between the two.
  return multiply(first, shift_by(second_size)) ^ second;
}

}  // namespace fourfold
