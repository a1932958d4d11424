#include "kernels/few_rows.h"

#include <algorithm>

#include "kernels/vector/gemm.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

// What is multiplied at once: a panel of kPanel columns of the right operand, kDepth deep, which
// stays in the first-level cache meanwhile, by kWeights rows of the left one.
constexpr std::int64_t kPanel = kTileVectors * kLanes, kWeights = 48, kDepth = 4096 / kPanel;
static_assert(kWeights % kLanes == 0);

std::int64_t panels_of(std::int64_t n) { return (n + kPanel - 1) / kPanel; }

// All of a panel.
FF_INLINE auto whole(std::int64_t depth) {
  return [=](std::int64_t, std::int64_t) { return TileNeeds{0, depth, kTileVectors}; };
}

// Forward: the product is made transposed, weights as the left operand, which needs no packing.

// Panels [k, kPanel] of x transposed. Rows beyond the last are zero, as what happens to be in
// memory may be slow to multiply.
void pack_transposed(const float* x, std::int64_t rows, std::int64_t k, float* packed) {
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

std::int64_t forward_scratch(std::int64_t rows, std::int64_t, std::int64_t k) {
  return panels_of(rows) * kPanel * (k + kWeights);
}

void forward(const float* x, const float* w, std::int64_t rows, std::int64_t n, std::int64_t k,
             float* y, std::int64_t y_stride, float* memory) {
  const std::int64_t panels = panels_of(rows), stride = panels * kPanel;
  float* transposed = memory;
  float* packed = memory + kWeights * stride;
  pack_transposed(x, rows, k, packed);
  for (std::int64_t first = 0; first < n; first += kWeights) {
    const std::int64_t weights = std::min(kWeights, n - first);
    const std::int64_t next = std::min(kWeights, n - first - weights);
    for (std::int64_t from = 0; from < k; from += kDepth) {
      const std::int64_t depth = std::min(kDepth, k - from);
      Ahead ahead(w + (first + weights) * k + from, next, depth, k);
      for (std::int64_t p = 0; p < panels; ++p) {
        multiply(BlockA{w + first * k + from, k, 1}, packed + (p * k + from) * kPanel, kPanel,
                 transposed + p * kPanel, stride, weights, from > 0, whole(depth), ahead);
      }
      ahead.finish();
    }
    unpack(transposed, stride, rows, weights, y + first, y_stride);
  }
}

// The gradients: panels are packed, as rows that are a power of two apart share few places of the
// cache.

// The panel of columns [0, cols) of `rows` rows, columns beyond them zero.
FF_INLINE void pack_panel(const float* from, std::int64_t stride, std::int64_t rows,
                          std::int64_t cols, float* to) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < kPanel; i += kLanes) {
      const std::int64_t there = cols - i;
      const float* at = from + row * stride + i;
      const F v = there >= kLanes ? load(at, All{}) : there > 0 ? load(at, there) : F{};
      store(to + row * kPanel + i, v, All{});
    }
  }
}

// The sums of a panel, `rows` of them, to where they belong. Those that go to memory unread go past
// the caches: bringing a line in before it is overwritten costs as much as writing it.
enum class Write { kStore, kStream, kAdd };
FF_INLINE void write_panel(const float* sums, std::int64_t rows, std::int64_t cols, float* to,
                           std::int64_t stride, Write how) {
  for (std::int64_t row = 0; row < rows; ++row) {
    for_lanes(std::min(cols, kPanel), [&](std::int64_t i, auto count) {
      const F sum = load(sums + row * kPanel + i, All{});
      float* at = to + row * stride + i;
      if (how == Write::kAdd) return store(at, load(at, count) + sum, count);
      if constexpr (std::is_same_v<decltype(count), All>) {
        if (how == Write::kStream) return stream(at, sum);
      }
      store(at, sum, count);
    });
  }
}

std::int64_t input_gradient_scratch(std::int64_t rows, std::int64_t, std::int64_t k) {
  return kPanel * (panels_of(k) * rows + kDepth);
}

void input_gradient(const float* dy, const float* w, std::int64_t w_stride, std::int64_t rows,
                    std::int64_t n, std::int64_t k, float* dx, std::int64_t dx_stride,
                    float* memory) {
  const std::int64_t panels = panels_of(k);
  float *panel = memory, *sums = memory + kPanel * kDepth;
  for (std::int64_t from = 0; from < n; from += kDepth) {
    const std::int64_t depth = std::min(kDepth, n - from);
    for (std::int64_t p = 0; p < panels; ++p) {
      const std::int64_t col = p * kPanel;
      pack_panel(w + from * w_stride + col, w_stride, depth, k - col, panel);
      // The panel that is next: beside this one, or the first of the next rows.
      const bool beside = p + 1 < panels;
      const std::int64_t next_row = beside ? from : from + depth, next = beside ? col + kPanel : 0;
      Ahead ahead(w + next_row * w_stride + next, std::min(kDepth, n - next_row),
                  std::min(kPanel, k - next), w_stride);
      multiply(BlockA{dy + from, n, 1}, panel, kPanel, sums + p * kPanel * rows, kPanel, rows,
               from > 0, whole(depth), ahead);
      ahead.finish();
    }
  }
  for (std::int64_t p = 0; p < panels; ++p) {
    const std::int64_t col = p * kPanel;
    write_panel(sums + col * rows, rows, k - col, dx + col, dx_stride, Write::kStore);
  }
}

std::int64_t weight_gradient_scratch(std::int64_t rows, std::int64_t, std::int64_t k) {
  return panels_of(k) * kPanel * rows + kWeights * (rows + kPanel);
}

void weight_gradient(const float* dy, std::int64_t dy_stride, const float* x, std::int64_t rows,
                     std::int64_t n, std::int64_t k, float* dw, bool accumulate, float* memory) {
  float* panels = memory;
  float* left = panels + panels_of(k) * kPanel * rows;
  float* sums = left + kWeights * rows;
  for (std::int64_t p = 0; p < panels_of(k); ++p) {
    pack_panel(x + p * kPanel, k, rows, k - p * kPanel, panels + p * kPanel * rows);
  }
  const bool aligned = reinterpret_cast<std::uintptr_t>(dw) % 64 == 0 && k % kLanes == 0;
  const Write how = accumulate ? Write::kAdd : aligned ? Write::kStream : Write::kStore;
  for (std::int64_t first = 0; first < n; first += kWeights) {
    const std::int64_t weights = std::min(kWeights, n - first);
    for (std::int64_t row = 0; row < rows; ++row) {
      for_lanes(weights, [&](std::int64_t i, auto count) {
        store(left + row * kWeights + i, load(dy + row * dy_stride + first + i, count), count);
      });
    }
    for (std::int64_t p = 0; p < panels_of(k); ++p) {
      const std::int64_t cols = k - p * kPanel;
      // What the next panel is added to.
      const bool adds = how == Write::kAdd && cols > kPanel;
      Ahead ahead(dw + first * k + (p + 1) * kPanel, adds ? weights : 0,
                  std::min(kPanel, cols - kPanel), k);
      for (std::int64_t from = 0; from < rows; from += kDepth) {
        const std::int64_t depth = std::min(kDepth, rows - from);
        multiply(BlockA{left + from * kWeights, 1, kWeights}, panels + (p * rows + from) * kPanel,
                 kPanel, sums, kPanel, weights, from > 0, whole(depth), ahead);
      }
      ahead.finish();
      write_panel(sums, weights, cols, dw + first * k + p * kPanel, k, how);
    }
  }
  stream_fence();
}

}  // namespace

void fill(FewRowsTable& table) {
  // Measured (bench_grouped_product): with AVX2 MKL's gradients are faster for any number of rows.
  constexpr std::int64_t kForwardRows = 256, kGradientRows = kLanes == 16 ? 128 : 0;
  table = {kForwardRows,           kGradientRows,  forward_scratch,         forward,
           input_gradient_scratch, input_gradient, weight_gradient_scratch, weight_gradient};
}

}  // namespace fourfold::kernels::CPU_CAPABILITY
