#include "base/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace fourfold {
namespace {

__extension__ typedef unsigned __int128 Wide;

constexpr std::int64_t kDigitMask = (std::int64_t{1} << ExactSum::kDigitBits) - 1;

int bit_length(Wide value) {
  const auto high = static_cast<std::uint64_t>(value >> 64);
  return high != 0 ? 64 + std::bit_width(high) : std::bit_width(static_cast<std::uint64_t>(value));
}

}  // namespace

void ExactSum::add(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto exponent = static_cast<int>(bits >> 52 & 0x7ff);
  if (exponent == 0x7ff) return add_non_finite(1);
  std::uint64_t mantissa = bits & 0xfffffffffffffu;
  if (exponent != 0) mantissa |= std::uint64_t{1} << 52;
  // The value is mantissa·2^(max(exponent, 1) - 1075).
  const int place = (exponent != 0 ? exponent : 1) - 1075 - kLowExponent;
  const Wide shifted = static_cast<Wide>(mantissa) << place % kDigitBits;
  const bool negative = bits >> 63 != 0;
  for (int i = 0; i < 3; ++i) {
    const auto digit = static_cast<std::int64_t>(shifted >> (i * kDigitBits)) & kDigitMask;
    words_[place / kDigitBits + i] += negative ? -digit : digit;
  }
  // Each call adds less than 2^40 to a digit.
  if (++pending_ == 1 << 21) normalise();
}

void ExactSum::merge(const ExactSum& other) {
  ExactSum carried = other;
  carried.normalise();
  normalise();
  for (int i = 0; i < kWords; ++i) words_[i] += carried.words_[i];
}

void ExactSum::normalise() {
  constexpr std::int64_t kHalf = std::int64_t{1} << (kDigitBits - 1);
  pending_ = 0;
  for (int i = 0; i + 1 < kDigits; ++i) {
    // The carry rounds down, so that the digit that stays is in [-2^39, 2^39).
    const std::int64_t carry = ((words_[i] >> (kDigitBits - 1)) + 1) >> 1;
    words_[i] -= carry * (2 * kHalf);
    words_[i + 1] += carry;
  }
}

double ExactSum::value() const {
  std::array<std::int64_t, kDigits> digits;
  int top = -1;
  for (int i = 0; i < kDigits; ++i) digits[i] = words_[i];
  // Digits in [0, 2^40) below a last one whose sign is the sum's.
  auto carry_down = [&digits] {
    for (int i = 0; i + 1 < kDigits; ++i) {
      digits[i + 1] += digits[i] >> kDigitBits;
      digits[i] &= kDigitMask;
    }
  };
  carry_down();
  const bool negative = digits[kDigits - 1] < 0;
  if (negative) {
    for (std::int64_t& digit : digits) digit = -digit;
    carry_down();
  }
  for (int i = 0; i < kDigits; ++i) top = digits[i] != 0 ? i : top;
  if (top < 0) return 0.0;
  if (top == kDigits - 1) {  // At least 2^1080.
    return negative ? -std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::infinity();
  }
  const int low = top >= 2 ? top - 2 : 0;
  Wide leading = 0;
  for (int i = top; i >= low; --i) {
    leading = (leading << kDigitBits) | static_cast<std::uint64_t>(digits[i]);
  }
  bool rest = false;
  for (int i = 0; i < low; ++i) rest = rest || digits[i] != 0;
  // 55 bits, the last of which also says that something lies below: one rounding, to even.
  const int dropped = bit_length(leading) > 55 ? bit_length(leading) - 55 : 0;
  auto rounded = static_cast<std::uint64_t>(leading >> dropped);
  if (rest || (static_cast<Wide>(rounded) << dropped) != leading) rounded |= 1;
  const double magnitude =
      std::ldexp(static_cast<double>(rounded), kLowExponent + kDigitBits * low + dropped);
  return negative ? -magnitude : magnitude;
}

}  // namespace fourfold
