#include "kernels/exact_sum.h"

#include <algorithm>

#include "kernels/vector/tables.h"
#include "kernels/vector/vec.h"

namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

using HalfF = float __attribute__((vector_size(kLanes * 2)));

constexpr std::int64_t kBlock = 1024;
// A block adds less than 2^51 to a digit, so digits are carried after this many blocks.
constexpr int kBlocksPerCarry = 1024;

FF_INLINE double power_of_two(int exponent) {
  const auto bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Bits of the largest and of the smallest nonzero magnitude; `smallest` is one less than those.
struct Magnitudes {
  std::uint32_t largest, smallest;
};

FF_INLINE Magnitudes magnitudes(const float* x) {
  U largest{}, smallest = ~U{};
  for (std::int64_t i = 0; i < kBlock; i += kLanes) {
    const U bits = reinterpret_cast<U>(load(x + i, All{})) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
    const U below = bits - 1u;  // Zero becomes the greatest number.
    smallest = below < smallest ? below : smallest;
  }
  Magnitudes m{0, ~0u};
  for (int i = 0; i < kLanes; ++i) {
    m.largest = std::max<std::uint32_t>(m.largest, largest[i]);
    m.smallest = std::min<std::uint32_t>(m.smallest, smallest[i]);
  }
  return m;
}

// Takes each term apart into multiples of the units of digits low + kCount - 1 ... low: adding and
// subtracting 1.5·2^52 units rounds to a multiple of the unit, exactly, and what is left goes to
// the next digit. Sums of such multiples are exact while they stay below 2^53 units.
template <bool kSquare, int kCount>
FF_INLINE void take_apart(const float* x, int low, ExactSum& sum) {
  D magic[kCount], total[kCount];
  for (int k = 0; k < kCount; ++k) {
    const int unit = ExactSum::kLowExponent + ExactSum::kDigitBits * (low + k);
    magic[k] = D{} + 1.5 * power_of_two(52 + unit);
    total[k] = D{};
  }
  for (std::int64_t i = 0; i < kBlock; i += kLanes / 2) {
    HalfF half;
    std::memcpy(&half, x + i, sizeof half);
    D term = __builtin_convertvector(half, D);
    if constexpr (kSquare) term = term * term;
    for (int k = kCount - 1; k > 0; --k) {
      const D part = (term + magic[k]) - magic[k];
      total[k] += part;
      term -= part;
    }
    total[0] += term;
  }
  for (int k = 0; k < kCount; ++k) {
    const int unit = ExactSum::kLowExponent + ExactSum::kDigitBits * (low + k);
    const double inverse = power_of_two(-unit);
    std::int64_t digit = 0;
    for (int i = 0; i < kLanes / 2; ++i) digit += static_cast<std::int64_t>(total[k][i] * inverse);
    sum.add_digit(low + k, digit);
  }
}

template <bool kSquare>
void add_one_by_one(const float* x, ExactSum& sum) {
  for (std::int64_t i = 0; i < kBlock; ++i) {
    const auto value = static_cast<double>(x[i]);
    sum.add(kSquare ? value * value : value);
  }
}

template <bool kSquare>
FF_INLINE void add_block(const float* x, ExactSum& sum) {
  const Magnitudes m = magnitudes(x);
  if (m.largest == 0) return;
  if (m.largest >= 0x7f800000u) return add_one_by_one<kSquare>(x, sum);
  // Magnitudes are below 2^above and multiples of 2^last; twice that for squares.
  const int factor = kSquare ? 2 : 1;
  const int above = factor * (std::max(1, static_cast<int>(m.largest >> 23)) - 126);
  const int last = factor * (std::max(1, static_cast<int>((m.smallest + 1) >> 23)) - 150);
  const int low = (last - ExactSum::kLowExponent) / ExactSum::kDigitBits;
  const int high = (above - 1 - ExactSum::kLowExponent) / ExactSum::kDigitBits;
  const int count = high - low + 1;
  if (count <= 2) return take_apart<kSquare, 2>(x, low, sum);
  if (count <= 3) return take_apart<kSquare, 3>(x, low, sum);
  if (count <= 4) return take_apart<kSquare, 4>(x, low, sum);
  if (count <= 5) return take_apart<kSquare, 5>(x, low, sum);
  if (count <= 6) return take_apart<kSquare, 6>(x, low, sum);
  if (count <= 8) return take_apart<kSquare, 8>(x, low, sum);
  return take_apart<kSquare, 16>(x, low, sum);  // Squares of floats span 15 digits at most.
}

template <bool kSquare, class T>
void add_all(const T* x, std::int64_t n, ExactSum& sum) {
  alignas(64) float copy[kBlock];
  int blocks = 0;
  sum.normalise();
  for (std::int64_t first = 0; first < n; first += kBlock) {
    const std::int64_t count = std::min(kBlock, n - first);
    const float* block = copy;
    if constexpr (std::is_same_v<T, float>) {
      if (count == kBlock) block = x + first;
    }
    if (block == copy) {
      std::memset(copy, 0, sizeof copy);
      for_lanes(count, [&](std::int64_t i, auto lanes) {
        store(copy + i, load(x + first + i, lanes), lanes);
      });
    }
    add_block<kSquare>(block, sum);
    if (++blocks % kBlocksPerCarry == 0) sum.normalise();
  }
  sum.normalise();
}

template <class T>
void add_squares(const T* x, std::int64_t n, ExactSum& sum) {
  add_all<true>(x, n, sum);
}

template <class T>
void add_values(const T* x, std::int64_t n, ExactSum& sum) {
  add_all<false>(x, n, sum);
}

}  // namespace

void fill(ForBoth<ExactSumTable>& tables) {
  tables = {{add_squares<float>, add_values<float>}, {add_squares<BFloat16>, add_values<BFloat16>}};
}

}  // namespace fourfold::kernels::CPU_CAPABILITY
