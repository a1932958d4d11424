#include "kernels/tile_product.h"

#include <algorithm>

#include "kernels/vector/amx.h"
#include "kernels/vector/tables.h"

// Products of packed factors. A panel is 32 rows of the left or 32 columns of the right factor; it
// holds for each step of 32 along the sum two tiles of a factor's bf16, for float those of hi, then
// those of lo. A left tile is [16 rows][32], a right one [16 pairs][16 columns][2].
namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

template <class T>
constexpr int kLimbs = std::is_same_v<T, float> ? 2 : 1;
constexpr std::int64_t kTile = 512, kStepTiles = 2;  // Elements of a tile; tiles of step and limb.
// Along the sum so many steps at once: a panel of them lies in the first cache.
constexpr std::int64_t kChunk = 16;
// Panels of each factor that are multiplied at once: with their sums they lie in the second cache.
constexpr std::int64_t kBlock = 8;
constexpr std::int64_t kSums = kTilePanel * kTilePanel;

// Sixteen vectors of 32 bf16, one register a row of a tile.
struct Square {
  F rows[kLanes];
};

FF_INLINE F bits_of(__m512i v) { return reinterpret_cast<F>(v); }
FF_INLINE __m512i bits_of(__m512bh v) { return reinterpret_cast<__m512i>(v); }
FF_INLINE __mmask32 first_of_32(std::int64_t n) {
  return n >= 32 ? 0xffffffffu : n <= 0 ? 0u : (1u << n) - 1u;
}

// hi and lo of 32 floats, the first 16 of them in `low`.
FF_INLINE void split(__m512 low, __m512 high, __m512i& hi, __m512i& lo) {
  hi = bits_of(_mm512_cvtne2ps_pbh(high, low));
  const __m512 near_low =
      _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(hi)), 16));
  const __m512 near_high = _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(hi, 1)), 16));
  lo = bits_of(_mm512_cvtne2ps_pbh(_mm512_sub_ps(high, near_high), _mm512_sub_ps(low, near_low)));
}

// Row r of the squares: elements (i, c ... c + 32) of a factor that is not transposed.
FF_INLINE void load_row(const BFloat16* p, __mmask32 mask, Square* squares, int r) {
  squares[0].rows[r] = bits_of(_mm512_maskz_loadu_epi16(mask, p));
}
FF_INLINE void load_row(const float* p, __mmask32 mask, Square* squares, int r) {
  __m512i hi, lo;
  split(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), p),
        _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), p + 16), hi, lo);
  squares[0].rows[r] = bits_of(hi);
  squares[1].rows[r] = bits_of(lo);
}

// Row r of the squares: elements (i ... i + 16, c) and (i ... i + 16, c + 1) in turn, of a
// transposed factor.
FF_INLINE void load_pair(const BFloat16* p, const BFloat16* next, __mmask16 mask, __mmask16 more,
                         Square* squares, int r) {
  const __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, p));
  const __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(more, next));
  squares[0].rows[r] = bits_of(_mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
}
FF_INLINE void load_pair(const float* p, const float* next, __mmask16 mask, __mmask16 more,
                         Square* squares, int r) {
  __m512i hi, lo;
  split(_mm512_maskz_loadu_ps(mask, p), _mm512_maskz_loadu_ps(more, next), hi, lo);
  // Element j beside element j + 16.
  const __m512i order = _mm512_or_si512(
      _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
      _mm512_slli_epi32(
          _mm512_set_epi32(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16), 16));
  squares[0].rows[r] = bits_of(_mm512_permutexvar_epi16(order, hi));
  squares[1].rows[r] = bits_of(_mm512_permutexvar_epi16(order, lo));
}

// One step of a panel: its first row (of the factor) and the place along the sum, what is left of
// both from there.
template <class T>
FF_INLINE void pack_step(const Factor<T>& factor, bool left, std::int64_t i, std::int64_t rows,
                         std::int64_t c, std::int64_t depth, std::uint16_t* to) {
  for (std::int64_t half = 0; half < kStepTiles; ++half) {
    Square squares[kLimbs<T>];
    const std::int64_t first = i + half * kLanes, there = rows - first;
    const __mmask16 across = static_cast<__mmask16>(first_of_32(there));
    const __mmask32 along = first_of_32(depth - c);
    for (int r = 0; r < kLanes; ++r) {
      if (factor.transposed) {
        const std::int64_t at = c + 2 * r;
        const T* p = factor.data + at * factor.stride + first;
        load_pair(p, p + factor.stride, at < depth ? across : 0, at + 1 < depth ? across : 0,
                  squares, r);
      } else {
        load_row(factor.data + (first + r) * factor.stride + c, r < there ? along : 0, squares, r);
      }
    }
    for (int limb = 0; limb < kLimbs<T>; ++limb) {
      // Pairs of a transposed factor are the rows of a right tile, rows of the others of a left
      // one.
      if (left == factor.transposed) transpose(squares[limb].rows);
      std::uint16_t* tile = to + (limb * kStepTiles + half) * kTile;
      for (int r = 0; r < kLanes; ++r) {
        _mm512_store_si512(tile + r * 2 * kLanes, reinterpret_cast<__m512i>(squares[limb].rows[r]));
      }
    }
  }
}

template <class T>
void pack(const Factor<T>& factor, bool left, std::int64_t rows, std::int64_t depth, Panels panels,
          std::uint16_t* packed) {
  const std::int64_t steps = (depth + kTilePanel - 1) / kTilePanel;
  constexpr std::int64_t kStep = kLimbs<T> * kStepTiles * kTile;
  const auto one = [&](std::int64_t panel, std::int64_t step) {
    pack_step(factor, left, panel * kTilePanel, rows, step * kTilePanel, depth,
              packed + (panel * steps + step) * kStep);
  };
  // Along the factor's rows in memory.
  if (factor.transposed) {
    for (std::int64_t step = 0; step < steps; ++step) {
      for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) one(panel, step);
    }
  } else {
    for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
      for (std::int64_t step = 0; step < steps; ++step) one(panel, step);
    }
  }
}

// sums [32, 32] (+)= a panel of the left by one of the right factor, along `steps` steps.
template <int limbs>
FF_INLINE void multiply_panels(const std::uint16_t* a, const std::uint16_t* b, std::int64_t steps,
                               float* sums, bool add) {
  constexpr std::int64_t kRow = 4 * kTilePanel;  // Bytes.
  begin_sums(sums, kRow, add);
  constexpr std::int64_t kStep = limbs * kStepTiles * kTile,
                         kLow = (limbs - 1) * kStepTiles * kTile;
  for (std::int64_t step = 0; step < steps; ++step, a += kStep, b += kStep) {
    if constexpr (limbs == 2) {  // lo·hi, hi·hi, hi·lo: four of the six tiles change in between.
      _tile_loadd(4, a + kLow, 64);
      _tile_loadd(5, a + kLow + kTile, 64);
      _tile_loadd(6, b, 64);
      _tile_loadd(7, b + kTile, 64);
      multiply_tiles();
    } else {
      _tile_loadd(6, b, 64);
      _tile_loadd(7, b + kTile, 64);
    }
    _tile_loadd(4, a, 64);
    _tile_loadd(5, a + kTile, 64);
    multiply_tiles();
    if constexpr (limbs == 2) {
      _tile_loadd(6, b + kLow, 64);
      _tile_loadd(7, b + kLow + kTile, 64);
      multiply_tiles();
    }
  }
  end_sums(sums, kRow);
}

template <class Out>
FF_INLINE void write(const float* sums, std::int64_t rows, std::int64_t cols, Out* to,
                     std::int64_t stride, bool accumulate) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for_lanes(cols, [&](std::int64_t i, auto count) {
      const F sum = load(sums + row * kTilePanel + i, All{});
      Out* at = to + row * stride + i;
      store(at, accumulate ? load(at, count) + sum : sum, count);
    });
  }
}

// The part of the result that is the left panels by the right ones, kBlock of each at the most.
template <class T, class Out>
FF_INLINE void multiply_block(const PackedFactors& packed, ProductShape shape, Panels left,
                              Panels right, const ProductTarget<Out>& target, float* sums) {
  const std::int64_t steps = (shape.depth + kTilePanel - 1) / kTilePanel;
  constexpr std::int64_t kStep = kLimbs<T> * kStepTiles * kTile;
  for (std::int64_t step = 0; step < steps; step += kChunk) {
    const std::int64_t count = std::min(kChunk, steps - step);
    for (std::int64_t j = right.begin; j < right.end; ++j) {
      for (std::int64_t i = left.begin; i < left.end; ++i) {
        float* of = sums + ((j - right.begin) * kBlock + (i - left.begin)) * kSums;
        multiply_panels<kLimbs<T>>(packed.left + (i * steps + step) * kStep,
                                   packed.right + (j * steps + step) * kStep, count, of, step > 0);
        if (step + count < steps) continue;
        const std::int64_t row = i * kTilePanel, col = j * kTilePanel;
        write(of, std::min(kTilePanel, shape.rows - row), std::min(kTilePanel, shape.cols - col),
              target.data + row * target.stride + col, target.stride, target.accumulate);
      }
    }
  }
}

template <class T, class Out>
void multiply(const PackedFactors& packed, ProductShape shape, Panels left, Panels right,
              const ProductTarget<Out>& target, float* sums) {
  const TileUse tiles;
  for (std::int64_t i = left.begin; i < left.end; i += kBlock) {
    for (std::int64_t j = right.begin; j < right.end; j += kBlock) {
      multiply_block<T>(packed, shape, {i, std::min(i + kBlock, left.end)},
                        {j, std::min(j + kBlock, right.end)}, target, sums);
    }
  }
}

}  // namespace

void fill_amx(TileProductTable& table) {
  table = {kBlock * kBlock * kSums,
           pack<float>,
           pack<BFloat16>,
           multiply<float, float>,
           multiply<BFloat16, float>,
           multiply<BFloat16, BFloat16>};
}

}  // namespace fourfold::kernels::CPU_CAPABILITY
