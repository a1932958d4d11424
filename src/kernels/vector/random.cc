#include "kernels/random.h"

#include "kernels/vector/philox.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

// Everything here is single additions, multiplications, divisions and roots, rounded as IEEE 754
// says, without fma: the bits are then the same on every CPU.

// ln u for u in [2^-32, 1], to about 1e-7.
FF_INLINE F log_of_uniform(F u) {
  constexpr std::int32_t kRootHalf = 0x3f3504f3;  // Bits of sqrt(1/2).
  const I bits = reinterpret_cast<I>(u);
  const I exponent = (bits - kRootHalf) >> 23;
  const F m = reinterpret_cast<F>(bits - (exponent << 23));  // In [sqrt(1/2), sqrt(2)).
  const F s = (m - splat(1.0f)) / (m + splat(1.0f));         // ln m = 2·atanh s.
  const F z = s * s;
  F series = splat(1.0f / 9) * z + splat(1.0f / 7);
  series = series * z + splat(1.0f / 5);
  series = series * z + splat(1.0f / 3);
  const F ln_m = (s + s) + (s + s) * (z * series);
  return __builtin_convertvector(exponent, F) * splat(0.69314718f) + ln_m;
}

struct SinCos {
  F sin, cos;
};

// Of a uniform angle: the top two bits of a word choose the quadrant, the rest the angle x in
// [-π/4, π/4) around its axis.
FF_INLINE SinCos sincos_of_word(U word) {
  const I rest = reinterpret_cast<I>(word & 0x3fffffffu) - 0x20000000;
  const F x = __builtin_convertvector(rest, F) * splat(0x1p-30f * 1.57079633f);
  const F z = x * x;
  F s = splat(2.7557319e-6f) * z - splat(1.9841270e-4f);
  s = s * z + splat(8.3333333e-3f);
  s = s * z - splat(1.6666667e-1f);
  s = x + x * (z * s);
  F c = splat(-2.7557319e-7f) * z + splat(2.4801587e-5f);
  c = c * z - splat(1.3888889e-3f);
  c = c * z + splat(4.1666667e-2f);
  c = splat(1.0f) - z * (splat(0.5f) - z * c);
  const U quadrant = word >> 30;
  const U sin_sign = (quadrant & 2u) << 30, cos_sign = ((quadrant + 1u) & 2u) << 30;
  const auto swapped = (quadrant & 1u) != 0u;
  const F sin = swapped ? c : s, cos = swapped ? s : c;
  return {reinterpret_cast<F>(reinterpret_cast<U>(sin) ^ sin_sign),
          reinterpret_cast<F>(reinterpret_cast<U>(cos) ^ cos_sign)};
}

FF_INLINE F radius_of_word(U word) {
  const F u =
      (__builtin_convertvector(reinterpret_cast<I>(word >> 1), F) + splat(0.5f)) * splat(0x1p-31f);
  const F square = splat(-2.0f) * log_of_uniform(u);
  return sqrt(square > F{} ? square : F{});
}

// Lanes a0 b0 a1 b1 ..., written to 2·kLanes floats.
FF_INLINE void store_interleaved(float* out, F a, F b) {
  const UL a_bits = reinterpret_cast<UL>(a), b_bits = reinterpret_cast<UL>(b);
  const UL even = join_words(a_bits, b_bits);                      // a0 b0 a2 b2 ...
  const UL odd = (a_bits >> 32) | (b_bits & 0xffffffff00000000u);  // a1 b1 a3 b3 ...
  const UL first = interleave_low(even, odd), second = interleave_high(even, odd);
  std::memcpy(out, &first, sizeof first);
  std::memcpy(out + kLanes, &second, sizeof second);
}

void normal_groups(float* out, std::uint64_t first_group, std::int64_t groups, PhiloxKey key,
                   std::uint32_t tensor_id, float std) {
  const UL id = splat_word(tensor_id);
  UL index = first_indices() + first_group;
  for (std::int64_t g = 0; g < groups; g += kCounters) {
    const Counters words = philox(Counters{{index, index >> 32, id, UL{}}}, key);
    const U radius_words = reinterpret_cast<U>(join_words(words.c[0], words.c[2]));
    const U angle_words = reinterpret_cast<U>(join_words(words.c[1], words.c[3]));
    const F radius = radius_of_word(radius_words) * splat(std);
    const SinCos angle = sincos_of_word(angle_words);
    if (groups - g >= kCounters) {
      store_interleaved(out + 4 * g, radius * angle.cos, radius * angle.sin);
    } else {
      float last[2 * kLanes];
      store_interleaved(last, radius * angle.cos, radius * angle.sin);
      std::memcpy(out + 4 * g, last, static_cast<std::size_t>(4 * (groups - g)) * sizeof(float));
    }
    index += static_cast<std::uint64_t>(kCounters);
  }
}

}  // namespace

void fill(RandomTable& table) { table = {normal_groups}; }

}  // namespace fourfold::kernels::CPU_CAPABILITY
