#include "kernels/tile_product.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {
namespace {

std::int64_t panels_of(std::int64_t n) { return (n + kTilePanel - 1) / kTilePanel; }

// The factor without its first `i` rows or columns of the result and `c` of what is summed over.
template <class T>
Factor<T> after(const Factor<T>& f, std::int64_t i, std::int64_t c) {
  return {f.data + (f.transposed ? c * f.stride + i : i * f.stride + c), f.stride, f.transposed};
}

// Packs both factors whole and multiplies them; `pack` and `multiply` are of the tables.
template <class T, class Out>
void multiply_at_once(const Factor<T>& left, const Factor<T>& right, ProductShape shape,
                      const ProductTarget<Out>& target, PackFactor<T> pack,
                      MultiplyPanels<Out> multiply) {
  const std::int64_t lefts = panels_of(shape.rows), rights = panels_of(shape.cols);
  // Floats that hold as many pairs of bf16; hi and lo of a float take one.
  const std::int64_t panel =
      kTilePanel * panels_of(shape.depth) * kTilePanel * sizeof(T) / sizeof(float);
  const Scratch memory((lefts + rights) * panel);
  const auto packed = [&](std::int64_t at) {
    return reinterpret_cast<std::uint16_t*>(memory.data() + at * panel);
  };
  parallel_ranges(lefts + rights, panel / 4, [&](std::int64_t begin, std::int64_t end) {
    if (begin < lefts) {
      pack(left, true, shape.rows, shape.depth, {begin, std::min(end, lefts)}, packed(0));
    }
    if (end > lefts) {
      const Panels panels{std::max<std::int64_t>(begin - lefts, 0), end - lefts};
      pack(right, false, shape.cols, shape.depth, panels, packed(lefts));
    }
  });
  const PackedFactors factors{packed(0), packed(lefts)};
  const bool by_rows = lefts >= rights;
  constexpr std::int64_t kPerStep = 256;  // Products that cost as much as an element's step.
  parallel_ranges(by_rows ? lefts : rights,
                  (by_rows ? rights : lefts) * panel * kTilePanel / kPerStep,
                  [&](std::int64_t begin, std::int64_t end) {
                    const Scratch sums(tables().tile_product.sums);
                    const Panels share{begin, end};
                    multiply(factors, shape, by_rows ? share : Panels{0, lefts},
                             by_rows ? Panels{0, rights} : share, target, sums.data());
                  });
}

template <class T, class Out>
void product(const Factor<T>& left, const Factor<T>& right, ProductShape shape,
             const ProductTarget<Out>& target, PackFactor<T> pack, MultiplyPanels<Out> multiply) {
  if (shape.depth == 0) {
    for (std::int64_t row = 0; row < shape.rows && !target.accumulate; ++row) {
      std::fill_n(target.data + row * target.stride, shape.cols, Out{});
    }
    return;
  }
  // A result of bf16 is rounded once, so that its sums are not cut.
  const std::int64_t depth = std::is_same_v<Out, float> ? kTileChunk.depth : shape.depth;
  for (std::int64_t c = 0; c < shape.depth; c += depth) {
    for (std::int64_t col = 0; col < shape.cols; col += kTileChunk.cols) {
      for (std::int64_t row = 0; row < shape.rows; row += kTileChunk.rows) {
        const ProductShape part{std::min(kTileChunk.rows, shape.rows - row),
                                std::min(kTileChunk.cols, shape.cols - col),
                                std::min(depth, shape.depth - c)};
        const ProductTarget<Out> to{target.data + row * target.stride + col, target.stride,
                                    target.accumulate || c > 0};
        multiply_at_once(after(left, row, c), after(right, col, c), part, to, pack, multiply);
      }
    }
  }
}

}  // namespace

bool has_tile_product() { return tables().tile_product.sums > 0; }

void tile_product(Factor<BFloat16> left, Factor<BFloat16> right, ProductShape shape,
                  ProductTarget<BFloat16> target) {
  const TileProductTable& table = tables().tile_product;
  product(left, right, shape, target, table.pack_bf16, table.bf16);
}
void tile_product(Factor<BFloat16> left, Factor<BFloat16> right, ProductShape shape,
                  ProductTarget<float> target) {
  const TileProductTable& table = tables().tile_product;
  product(left, right, shape, target, table.pack_bf16, table.bf16_to_f32);
}
void tile_product(Factor<float> left, Factor<float> right, ProductShape shape,
                  ProductTarget<float> target) {
  const TileProductTable& table = tables().tile_product;
  product(left, right, shape, target, table.pack_f32, table.f32);
}

}  // namespace fourfold::kernels
