#pragma once

#include <cstdint>

#include "base/bfloat16.h"
#include "base/tile_chunk.h"

namespace fourfold::kernels {

/// One factor of a product as it lies in memory: i counts the rows or columns of the result, c what
/// is summed over.
template <class T>
struct Factor {
  const T* data;
  std::int64_t stride;      ///< In elements.
  bool transposed = false;  ///< Element (i, c) at data[c * stride + i], else at [i * stride + c].
};

/// A dense result with rows `stride` elements apart.
template <class T>
struct ProductTarget {
  T* data;
  std::int64_t stride;
  bool accumulate = false;  ///< Adds to what is there.
};

/// Whether this CPU has tiles for bf16 (AMX) and LibTorch uses AVX-512 on it.
bool has_tile_product();

/// target [rows, cols] (+)= left [rows, depth] · right [cols, depth]ᵀ on AMX tiles, on the intra-op
/// threads (within one of their regions on the calling thread alone). Only where
/// has_tile_product().
///
/// Sums are f32, in the order of c in chunks of the tile's 32, whatever the number of threads.
/// Numbers below 2^-126 count as zero. The factors are packed on the way, a kTileChunk at a time.
///
///   bf16    factors as they are; the result is rounded once.
///   float   "fp32x3": each factor as the sum of two bf16, x ≈ hi + lo, and of the product of the
///           sums the three large terms: relative error about 2^-17 of the products' magnitudes
///           (bf16: 2^-9, f32: 2^-24). An infinite element gives NaN.
void tile_product(Factor<BFloat16> left, Factor<BFloat16> right, ProductShape shape,
                  ProductTarget<BFloat16> target);
void tile_product(Factor<BFloat16> left, Factor<BFloat16> right, ProductShape shape,
                  ProductTarget<float> target);
void tile_product(Factor<float> left, Factor<float> right, ProductShape shape,
                  ProductTarget<float> target);

}  // namespace fourfold::kernels
