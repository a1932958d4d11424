#pragma once

#include "base/philox.h"
#include "kernels/vector/vec.h"

namespace fourfold::kernels::CPU_CAPABILITY {

inline constexpr int kCounters = kLanes / 2;

/// kCounters Philox counters, word by word; a word is the low half of a 64-bit lane, the high half
/// holds anything.
struct Counters {
  UL c[4];
};

FF_INLINE UL splat_word(std::uint32_t word) { return UL{} + word; }

/// The same as philox4x32() of base/philox.h in every lane.
FF_INLINE Counters philox(Counters v, PhiloxKey key) {
  constexpr std::uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const UL p0 = multiply_low(v.c[0], splat_word(kMul0));
    const UL p1 = multiply_low(v.c[2], splat_word(kMul1));
    v.c[0] = (p1 >> 32) ^ v.c[1] ^ splat_word(key[0]);
    v.c[1] = p1;
    v.c[2] = (p0 >> 32) ^ v.c[3] ^ splat_word(key[1]);
    v.c[3] = p0;
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return v;
}

/// Words a and b side by side: 32-bit lanes a0 b0 a1 b1 ...
FF_INLINE UL join_words(UL a, UL b) { return (a & 0xffffffffu) | (b << 32); }

/// 64-bit lanes a0 b0 a1 b1 ... of the lower and upper halves of a and b.
FF_INLINE UL interleave_low(UL a, UL b) {
#if defined(CPU_CAPABILITY_AVX512)
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#elif defined(CPU_CAPABILITY_AVX2)
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#else
  return __builtin_shufflevector(a, b, 0, 2);
#endif
}
FF_INLINE UL interleave_high(UL a, UL b) {
#if defined(CPU_CAPABILITY_AVX512)
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#elif defined(CPU_CAPABILITY_AVX2)
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#else
  return __builtin_shufflevector(a, b, 1, 3);
#endif
}

FF_INLINE UL first_indices() {
  UL index;
  for (int i = 0; i < kCounters; ++i) index[i] = static_cast<std::uint64_t>(i);
  return index;
}

/// Writes the four words of each of `groups` counters, rounded up to kCounters, where
/// counters(index) gives those of a vector of group numbers from 0.
template <class CountersOf>
FF_INLINE void philox_words(std::uint32_t* out, std::int64_t groups, PhiloxKey key,
                            CountersOf counters) {
  UL index = first_indices();
  for (std::int64_t g = 0; g < groups; g += kCounters) {
    const Counters words = philox(counters(index), key);
    const UL low = join_words(words.c[0], words.c[1]), high = join_words(words.c[2], words.c[3]);
    const UL first = interleave_low(low, high), second = interleave_high(low, high);
    std::memcpy(out + 4 * g, &first, sizeof first);
    std::memcpy(out + 4 * g + kLanes, &second, sizeof second);
    index += static_cast<std::uint64_t>(kCounters);
  }
}

/// v·scale where the word is at least `threshold`, else 0.
FF_INLINE F keep(F v, const std::uint32_t* words, std::uint32_t threshold, float scale) {
  U w;
  std::memcpy(&w, words, sizeof w);
  return w >= threshold ? v * splat(scale) : F{};
}

}  // namespace fourfold::kernels::CPU_CAPABILITY
