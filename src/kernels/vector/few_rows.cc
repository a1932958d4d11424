#include "kernels/few_rows.h"

#include <algorithm>

#include "kernels/vector/gemm.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

// The product is made transposed, weights as the left operand, which needs no packing: kWeights
// rows of w at once by a panel of kPanel rows of x, kDepth deep, which stays in the first-level
// cache meanwhile.
constexpr std::int64_t kPanel = kTileVectors * kLanes, kWeights = 48, kDepth = 256;
static_assert(kWeights % kLanes == 0);

std::int64_t panels_of(std::int64_t rows) { return (rows + kPanel - 1) / kPanel; }

// Panels [k, kPanel] of x transposed. Rows beyond the last are zero, as what happens to be in
// memory may be slow to multiply.
void pack(const float* x, std::int64_t rows, std::int64_t k, float* packed) {
  for (std::int64_t first = 0; first < panels_of(rows) * kPanel; first += kLanes) {
    float* to = packed + first / kPanel * kPanel * k + first % kPanel;
    for_lanes(k, [&](std::int64_t i, auto count) {
      F block[kLanes];
      for (int l = 0; l < kLanes; ++l) {
        block[l] = first + l < rows ? load(x + (first + l) * k + i, count) : F{};
      }
      transpose(block);
      for (int l = 0; l < kLanes && i + l < k; ++l) store(to + (i + l) * kPanel, block[l], All{});
    });
  }
}

// y[rows, n] from the transposed product [n, stride].
void unpack(const float* product, std::int64_t stride, std::int64_t rows, std::int64_t n, float* y,
            std::int64_t y_stride) {
  for (std::int64_t row = 0; row < rows; row += kLanes) {
    for_lanes(n, [&](std::int64_t i, auto count) {
      F block[kLanes];
      for (int l = 0; l < kLanes; ++l) block[l] = load(product + (i + l) * stride + row, All{});
      transpose(block);
      for (int l = 0; l < kLanes && row + l < rows; ++l) {
        store(y + (row + l) * y_stride + i, block[l], count);
      }
    });
  }
}

void prefetch(const float* p, std::int64_t floats) {
  constexpr std::int64_t kLine = 16;
  for (std::int64_t i = 0; i < floats; i += kLine) __builtin_prefetch(p + i, 0, 2);
}

std::int64_t scratch(std::int64_t rows, std::int64_t k) {
  return panels_of(rows) * kPanel * (k + kWeights);
}

void product(const float* x, const float* w, std::int64_t rows, std::int64_t n, std::int64_t k,
             float* y, std::int64_t y_stride, float* memory) {
  const std::int64_t panels = panels_of(rows), stride = panels * kPanel;
  float* transposed = memory;
  float* packed = memory + kWeights * stride;
  pack(x, rows, k, packed);
  for (std::int64_t first = 0; first < n; first += kWeights) {
    const std::int64_t weights = std::min(kWeights, n - first);
    const std::int64_t next = std::min(kWeights, n - first - weights);
    for (std::int64_t from = 0; from < k; from += kDepth) {
      const std::int64_t depth = std::min(kDepth, k - from);
      for (std::int64_t p = 0; p < panels; ++p) {
        multiply(BlockA{w + first * k + from, k, 1}, packed + (p * k + from) * kPanel, kPanel,
                 transposed + p * kPanel, stride, weights, from > 0,
                 [&](std::int64_t, std::int64_t) { return TileNeeds{0, depth, kTileVectors}; });
        // The next weights on their way to the cache, some after each panel.
        const std::int64_t share = next * depth / panels;
        prefetch(w + (first + weights) * k + next * from + p * share, share);
      }
    }
    unpack(transposed, stride, rows, weights, y + first, y_stride);
  }
}

}  // namespace

void fill(FewRowsTable& table) { table = {scratch, product}; }

}  // namespace fourfold::kernels::CPU_CAPABILITY
