#pragma once

// The vocabulary of the vector sources: one vector of floats of the widest kind that the capability
// has, partial loads and stores, and exp. A vector source is compiled once per capability
// (CPU_CAPABILITY is AVX512, AVX2 or DEFAULT) into the namespace of that name, which keeps inline
// functions of different instruction sets apart. Contraction is off in these files: a multiply-add
// is fused only where fma() says so, and a tail uses the arithmetic of whole vectors, so the bits
// of an element depend neither on its place nor on the length.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/bfloat16.h"

#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
#include <immintrin.h>
#endif

#define FF_INLINE inline __attribute__((always_inline))

namespace fourfold::kernels::CPU_CAPABILITY {

#if defined(CPU_CAPABILITY_AVX512)
inline constexpr int kLanes = 16;
#elif defined(CPU_CAPABILITY_AVX2)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

/// kLanes floats or integers, and half as many doubles or 64-bit integers; operators work lane by
/// lane, `mask ? a : b` selects.
using F = float __attribute__((vector_size(kLanes * 4)));
using I = std::int32_t __attribute__((vector_size(kLanes * 4)));
using U = std::uint32_t __attribute__((vector_size(kLanes * 4)));
using D = double __attribute__((vector_size(kLanes * 4)));
using L = std::int64_t __attribute__((vector_size(kLanes * 4)));
using UL = std::uint64_t __attribute__((vector_size(kLanes * 4)));

/// A count of lanes known at compile time: the whole vector.
struct All {};

#if defined(CPU_CAPABILITY_AVX512)

FF_INLINE F splat(float x) { return _mm512_set1_ps(x); }
FF_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
FF_INLINE F sqrt(F a) { return _mm512_sqrt_ps(a); }
FF_INLINE F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | 8); }
FF_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
FF_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
FF_INLINE __mmask16 lanes(std::int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
FF_INLINE F load(const float* p, All) { return _mm512_loadu_ps(p); }
FF_INLINE F load(const float* p, std::int64_t n) { return _mm512_maskz_loadu_ps(lanes(n), p); }
FF_INLINE void store(float* p, F v, All) { _mm512_storeu_ps(p, v); }
FF_INLINE void store(float* p, F v, std::int64_t n) { _mm512_mask_storeu_ps(p, lanes(n), v); }
/// Past the caches, to a multiple of the vector's size; stream_fence() orders what follows.
FF_INLINE void stream(float* p, F v) { _mm512_stream_ps(p, v); }
FF_INLINE F widen(__m256i half) {
  return reinterpret_cast<F>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
FF_INLINE __m256i narrow(F v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  up = _mm512_mask_or_epi32(up, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), bits,
                            _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}
FF_INLINE F load(const BFloat16* p, All) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
FF_INLINE F load(const BFloat16* p, std::int64_t n) {
  return widen(_mm256_maskz_loadu_epi16(lanes(n), p));
}
FF_INLINE void store(BFloat16* p, F v, All) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(v));
}
FF_INLINE void store(BFloat16* p, F v, std::int64_t n) {
  _mm256_mask_storeu_epi16(p, lanes(n), narrow(v));
}
/// a·2^n for integral n.
FF_INLINE F scale_by_power(F a, F n) { return _mm512_scalef_ps(a, n); }
/// The low 32 bits of each 64-bit lane multiplied: 64-bit products.
FF_INLINE UL multiply_low(UL a, UL b) {
  return reinterpret_cast<UL>(
      _mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}

#else

#if defined(CPU_CAPABILITY_AVX2)

FF_INLINE F splat(float x) { return _mm256_set1_ps(x); }
FF_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
FF_INLINE F sqrt(F a) { return _mm256_sqrt_ps(a); }
FF_INLINE F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | 8); }
FF_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
FF_INLINE F min(F a, F b) { return _mm256_min_ps(a, b); }
FF_INLINE __m256i lanes(std::int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)),
                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
FF_INLINE F load(const float* p, All) { return _mm256_loadu_ps(p); }
FF_INLINE F load(const float* p, std::int64_t n) { return _mm256_maskload_ps(p, lanes(n)); }
FF_INLINE void store(float* p, F v, All) { _mm256_storeu_ps(p, v); }
FF_INLINE void store(float* p, F v, std::int64_t n) { _mm256_maskstore_ps(p, lanes(n), v); }
FF_INLINE void stream(float* p, F v) { _mm256_stream_ps(p, v); }
FF_INLINE F widen(__m128i half) {
  return reinterpret_cast<F>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
FF_INLINE __m128i narrow(F v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  up = _mm256_blendv_epi8(up, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
  up = _mm256_srli_epi32(up, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(up), _mm256_extracti128_si256(up, 1));
}
FF_INLINE F load(const BFloat16* p, All) {
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
FF_INLINE void store(BFloat16* p, F v, All) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(v));
}
FF_INLINE UL multiply_low(UL a, UL b) {
  return reinterpret_cast<UL>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}

#else

FF_INLINE F splat(float x) { return F{x, x, x, x}; }
FF_INLINE F fma(F a, F b, F c) { return a * b + c; }
FF_INLINE F sqrt(F a) {
  for (int i = 0; i < kLanes; ++i) a[i] = std::sqrt(a[i]);
  return a;
}
FF_INLINE F max(F a, F b) { return a > b ? a : b; }
FF_INLINE F min(F a, F b) { return a < b ? a : b; }
/// To the nearest integer, ties to even, for |a| < 2^22.
FF_INLINE F round(F a) {
  const F magic = splat(0x1.8p23f);
  return (a + magic) - magic;
}
FF_INLINE F load(const float* p, All) {
  F v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
FF_INLINE void store(float* p, F v, All) { std::memcpy(p, &v, sizeof v); }
FF_INLINE void stream(float* p, F v) { store(p, v, All{}); }
FF_INLINE F load(const float* p, std::int64_t n) {
  F v{};
  for (std::int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
FF_INLINE void store(float* p, F v, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) p[i] = v[i];
}
FF_INLINE F load(const BFloat16* p, All) {
  F v;
  for (int i = 0; i < kLanes; ++i) v[i] = bf16_to_float(p[i].bits);
  return v;
}
FF_INLINE void store(BFloat16* p, F v, All) {
  for (int i = 0; i < kLanes; ++i) p[i].bits = float_to_bf16(v[i]);
}
FF_INLINE UL multiply_low(UL a, UL b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }

#endif

FF_INLINE F load(const BFloat16* p, std::int64_t n) {
  BFloat16 all[kLanes] = {};
  for (std::int64_t i = 0; i < n; ++i) all[i] = p[i];
  return load(all, All{});
}
FF_INLINE void store(BFloat16* p, F v, std::int64_t n) {
  BFloat16 all[kLanes];
  store(all, v, All{});
  for (std::int64_t i = 0; i < n; ++i) p[i] = all[i];
}
FF_INLINE F scale_by_power(F a, F n) {
  const I exponent = (__builtin_convertvector(n, I) + 127) << 23;
  return a * reinterpret_cast<F>(exponent);
}

#endif

FF_INLINE void stream_fence() {
#if defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2)
  _mm_sfence();
#endif
}

/// The first n lanes of v, zero in the others: what a sum over a tail needs.
FF_INLINE F first_lanes(F v, All) { return v; }
FF_INLINE F first_lanes(F v, std::int64_t n) {
  I index;
  for (int i = 0; i < kLanes; ++i) index[i] = i;
  return index < static_cast<std::int32_t>(n) ? v : F{};
}

/// The sum and the greatest of the lanes, halves with halves.
#if defined(CPU_CAPABILITY_AVX512)
FF_INLINE float sum(F v) { return _mm512_reduce_add_ps(v); }
FF_INLINE float maximum(F v) { return _mm512_reduce_max_ps(v); }
#else
template <class Op>
FF_INLINE float reduce(F v, Op op) {
  float lane[kLanes];
  store(lane, v, All{});
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] = op(lane[i], lane[i + width]);
  }
  return lane[0];
}
FF_INLINE float sum(F v) {
  return reduce(v, [](float a, float b) { return a + b; });
}
FF_INLINE float maximum(F v) {
  return reduce(v, [](float a, float b) { return a > b ? a : b; });
}
#endif

/// Lanes a0 b0 a1 b1 ... of the lower and of the upper halves of a and b.
FF_INLINE F zip_low(F a, F b) {
#if defined(CPU_CAPABILITY_AVX512)
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
#elif defined(CPU_CAPABILITY_AVX2)
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#else
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#endif
}
FF_INLINE F zip_high(F a, F b) {
#if defined(CPU_CAPABILITY_AVX512)
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
#elif defined(CPU_CAPABILITY_AVX2)
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

/// Transposes kLanes rows of kLanes: zipping row i with row i + kLanes / 2, log2(kLanes) times.
FF_INLINE void transpose(F (&rows)[kLanes]) {
#pragma GCC unroll 4
  for (int round = 1; round < kLanes; round *= 2) {
    F zipped[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      zipped[2 * i] = zip_low(rows[i], rows[i + kLanes / 2]);
      zipped[2 * i + 1] = zip_high(rows[i], rows[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = zipped[i];
  }
}

/// e^x to about 1e-7; 0 below -80 (denormals would make what follows many times slower) and e^80
/// above 80 (so that the inverse is none either). NaN stays NaN.
FF_INLINE F exp(F x) {
  const F limited = x > splat(80.0f) ? splat(80.0f) : x;
  const F n = round(limited * splat(1.44269504f));
  F r = fma(n, splat(-0.693145751953125f), limited);  // ln 2 in two parts, the first with 0 bits.
  r = fma(n, splat(-1.42860677e-6f), r);
  // A minimax polynomial of (e^r - 1 - r) / r² on |r| <= ln 2 / 2.
  F q = fma(splat(0.00831253f), r, splat(0.04189011f));
  q = fma(q, r, splat(0.16667114f));
  q = fma(q, r, splat(0.49999232f));
  const F p = fma(q * r, r, r) + splat(1.0f);
  return x < splat(-80.0f) ? F{} : scale_by_power(p, n);
}

/// 1 / (1 + e^-x).
FF_INLINE F sigmoid(F x) { return splat(1.0f) / (splat(1.0f) + exp(-x)); }

/// Calls body(i, count) along n elements: count is All for whole vectors, then the number of lanes
/// of the tail.
template <class Body>
FF_INLINE void for_lanes(std::int64_t n, Body body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, All{});
  if (i < n) body(i, n - i);
}

/// Calls body(i, count, which) with which = 0 ... 3 in turn, for sums in four registers.
template <class Body>
FF_INLINE void for_lanes_by_four(std::int64_t n, Body body) {
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    body(i, All{}, 0);
    body(i + kLanes, All{}, 1);
    body(i + 2 * kLanes, All{}, 2);
    body(i + 3 * kLanes, All{}, 3);
  }
  for (; i + kLanes <= n; i += kLanes) body(i, All{}, 0);
  if (i < n) body(i, n - i, 1);
}

}  // namespace fourfold::kernels::CPU_CAPABILITY
