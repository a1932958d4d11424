#pragma once

#include "kernels/vector/vec.h"

/// Products of blocks that lie in the first-level cache, C (+)= A·B with float sums: what attention
/// multiplies is too small for a library's packing and call to pay.
namespace fourfold::kernels::CPU_CAPABILITY {

#if defined(CPU_CAPABILITY_AVX512)
inline constexpr int kTileRows = 6, kTileVectors = 4;  // 24 of 32 registers are sums.
#elif defined(CPU_CAPABILITY_AVX2)
inline constexpr int kTileRows = 6, kTileVectors = 2;  // 12 of 16.
#else
inline constexpr int kTileRows = 4, kTileVectors = 2;
#endif

/// A's element (i, k) is a[i·row_stride + k·k_stride].
struct BlockA {
  const float* a;
  std::int64_t row_stride, k_stride;
};

/// Nothing is fetched ahead.
struct NoAhead {
  FF_INLINE void step() {}
};

/// Lines of memory, rows of `floats` floats `stride` apart, that a product fetches on the way, one
/// at every second place of the sum: many at once would hold up its own loads.
class Ahead {
 public:
  FF_INLINE Ahead(const float* p, std::int64_t rows, std::int64_t floats, std::int64_t stride)
      : p_(p), rows_(floats > 0 ? rows : 0), floats_(floats), stride_(stride) {}
  FF_INLINE void step() {
    if (rows_ <= 0) return;
    __builtin_prefetch(p_ + at_, 0, 2);
    at_ += kLine;
    if (at_ < floats_) return;
    at_ = 0;
    p_ += stride_;
    --rows_;
  }
  /// What the product had no steps for.
  FF_INLINE void finish() {
    while (rows_ > 0) step();
  }

 private:
  static constexpr std::int64_t kLine = 16;
  const float* p_;
  std::int64_t rows_, floats_, stride_, at_ = 0;
};

template <int kRows, int kVectors, class AheadOrNot>
FF_INLINE void multiply_tile(BlockA a, const float* b, std::int64_t b_stride, float* c,
                             std::int64_t c_stride, std::int64_t depth, bool accumulate,
                             AheadOrNot& ahead) {
  F sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      sums[i][j] = accumulate ? load(c + i * c_stride + j * kLanes, All{}) : F{};
    }
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    if (k % 2 == 0) ahead.step();
    F row[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) row[j] = load(b + k * b_stride + j * kLanes, All{});
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const F left = splat(a.a[i * a.row_stride + k * a.k_stride]);
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) sums[i][j] = fma(left, row[j], sums[i][j]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) store(c + i * c_stride + j * kLanes, sums[i][j], All{});
  }
}

template <int kRows, class AheadOrNot>
FF_INLINE void multiply_rows(BlockA a, const float* b, std::int64_t b_stride, float* c,
                             std::int64_t c_stride, std::int64_t vectors, std::int64_t depth,
                             bool accumulate, AheadOrNot& ahead) {
  std::int64_t j = 0;
  for (; j + kTileVectors <= vectors; j += kTileVectors) {
    multiply_tile<kRows, kTileVectors>(a, b + j * kLanes, b_stride, c + j * kLanes, c_stride, depth,
                                       accumulate, ahead);
  }
  for (; j < vectors; ++j) {
    multiply_tile<kRows, 1>(a, b + j * kLanes, b_stride, c + j * kLanes, c_stride, depth,
                            accumulate, ahead);
  }
}

/// What a tile of rows [row, row + rows) of the product needs: sums over k in [k_begin, k_end) and
/// the first `vectors` vectors of columns.
struct TileNeeds {
  std::int64_t k_begin, k_end, vectors;
};

/// C[rows, vectors·kLanes] = A·B, or += where `accumulate`; `needs(row, rows)` says for each tile
/// of rows what of it is to be computed (the rest of C is left alone).
template <class Needs, class AheadOrNot>
FF_INLINE void multiply(BlockA a, const float* b, std::int64_t b_stride, float* c,
                        std::int64_t c_stride, std::int64_t rows, bool accumulate, Needs needs,
                        AheadOrNot& ahead) {
  std::int64_t i = 0;
  auto tile = [&](auto rows_at_once) {
    constexpr int kRows = decltype(rows_at_once)::value;
    const TileNeeds n = needs(i, kRows);
    multiply_rows<kRows>(
        BlockA{a.a + i * a.row_stride + n.k_begin * a.k_stride, a.row_stride, a.k_stride},
        b + n.k_begin * b_stride, b_stride, c + i * c_stride, c_stride, n.vectors,
        n.k_end - n.k_begin, accumulate, ahead);
    i += kRows;
  };
  while (i + kTileRows <= rows) tile(std::integral_constant<int, kTileRows>{});
  if (i + 4 <= rows) tile(std::integral_constant<int, 4>{});
  if (i + 2 <= rows) tile(std::integral_constant<int, 2>{});
  if (i < rows) tile(std::integral_constant<int, 1>{});
}
template <class Needs>
FF_INLINE void multiply(BlockA a, const float* b, std::int64_t b_stride, float* c,
                        std::int64_t c_stride, std::int64_t rows, bool accumulate, Needs needs) {
  NoAhead none;
  multiply(a, b, b_stride, c, c_stride, rows, accumulate, needs, none);
}

}  // namespace fourfold::kernels::CPU_CAPABILITY
