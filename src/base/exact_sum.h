#pragma once

#include <array>
#include <cstdint>

namespace fourfold {

/// The exact sum of any number of doubles, as digits of 40 bits in int64 (a "superaccumulator",
/// Kulisch): the result has the same bits for every order, cut and grouping of the terms. Ranks
/// merge by adding the arrays element by element as integers, up to 2²⁰ ranks between two
/// normalise(); only then is value() taken.
class ExactSum {
 public:
  static constexpr int kDigitBits = 40;
  static constexpr int kLowExponent = -1080;  ///< Weight of digit 0; doubles reach down to 2^-1074.
  static constexpr int kDigits = 55;          ///< Up to 2^1120: 2^96 times the largest double.

  /// Adds a finite value; an infinity or NaN only adds 1 to non_finite().
  void add(double value);
  /// Adds digit·2^(kLowExponent + 40·index); |digit| < 2^62 and the digit there stays within
  /// int64 as long as normalise() is called every other time.
  void add_digit(int index, std::int64_t digit) { words_[index] += digit; }
  void add_non_finite(std::int64_t count) { words_[kDigits] += count; }
  void merge(const ExactSum& other);

  /// Carries so that every digit but the last lies in [-2^39, 2^39).
  void normalise();

  /// The sum rounded once to the nearest double (ties to even); the count of non-finite terms is
  /// not looked at. Overflows to infinity.
  double value() const;
  std::int64_t non_finite() const { return words_[kDigits]; }

  /// The words that ranks add up (call normalise() first): digits, then the non-finite count.
  static constexpr int kWords = kDigits + 1;
  std::array<std::int64_t, kWords>& words() { return words_; }
  const std::array<std::int64_t, kWords>& words() const { return words_; }

 private:
  std::array<std::int64_t, kWords> words_{};
  std::int32_t pending_ = 0;  // Calls of add() since the last carry.
};

}  // namespace fourfold
