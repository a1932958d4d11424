#include "kernels/dropout.h"

#include <algorithm>

#include "kernels/vector/philox.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

constexpr std::int64_t kTile = 256;  // Columns whose random words are made at once.

// The words of local columns [first, first + n), n <= kTile, of a local row; returns where the word
// of column `first` is in `words`.
FF_INLINE const std::uint32_t* tile_words(const DropoutSpec& spec, std::int64_t row,
                                          std::int64_t first, std::int64_t n,
                                          std::uint32_t* words) {
  const std::int64_t r = spec.row0 + row;
  const auto global = static_cast<std::uint64_t>(
      spec.samples != nullptr ? spec.samples[r / spec.seq] * spec.seq + r % spec.seq : r);
  const auto column = static_cast<std::uint64_t>(spec.col0 + first);
  const std::uint64_t skipped = column % 4;
  const UL c0 = splat_word(static_cast<std::uint32_t>(global));
  const UL c1 = splat_word(static_cast<std::uint32_t>(global >> 32) ^ (spec.layer << 16));
  const UL c3 = splat_word(spec.step);
  const std::int64_t groups = (static_cast<std::int64_t>(skipped) + n + 3) / 4;
  philox_words(words, groups, spec.key,
               [&](UL index) { return Counters{{c0, c1, index + column / 4, c3}}; });
  return words + skipped;
}

// Calls body(i, count, mask) along a row; mask(v) drops or scales the lanes of v.
template <class Body>
FF_INLINE void for_masked_lanes(const DropoutSpec& spec, std::int64_t row, std::int64_t cols,
                                Body body) {
  const std::uint32_t threshold = dropout_threshold(spec.p);
  const float scale = 1.0f / (1.0f - spec.p);
  alignas(64) std::uint32_t buffer[kTile + 4 * kLanes];
  for (std::int64_t first = 0; first < cols; first += kTile) {
    const std::int64_t n = std::min(kTile, cols - first);
    const std::uint32_t* words = tile_words(spec, row, first, n, buffer);
    for_lanes(n, [&](std::int64_t i, auto count) {
      body(first + i, count, [&](F v) { return keep(v, words + i, threshold, scale); });
    });
  }
}

// `masked(row, body)` runs body(i, count, mask) along the row.
template <class T, class Masked>
FF_INLINE void forward_rows(const T* in, const float* bias, const T* residual, T* out,
                            std::int64_t rows, std::int64_t cols, Masked masked) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t at = row * cols;
    masked(row, [&](std::int64_t i, auto count, auto mask) {
      F v = load(in + at + i, count);
      if (bias != nullptr) v = v + load(bias + i, count);
      v = mask(v);
      if (residual != nullptr) v = v + load(residual + at + i, count);
      store(out + at + i, v, count);
    });
  }
}

template <class T, class Masked>
FF_INLINE void backward_rows(const T* dout, T* din, float* dbias, std::int64_t rows,
                             std::int64_t cols, Masked masked) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t at = row * cols;
    masked(row, [&](std::int64_t i, auto count, auto mask) {
      const F d = mask(load(dout + at + i, count));
      if (dbias != nullptr) store(dbias + i, load(dbias + i, count) + d, count);
      if (din != nullptr) store(din + at + i, d, count);
    });
  }
}

FF_INLINE auto masked_by(const DropoutSpec& spec, std::int64_t cols) {
  return [&spec, cols](std::int64_t row, auto body) { for_masked_lanes(spec, row, cols, body); };
}

FF_INLINE auto unmasked(std::int64_t cols) {
  return [cols](std::int64_t, auto body) {
    for_lanes(cols, [&](std::int64_t i, auto count) { body(i, count, [](F v) { return v; }); });
  };
}

template <class T>
void forward(const T* in, const float* bias, const T* residual, T* out, std::int64_t rows,
             std::int64_t cols, const DropoutSpec& spec) {
  if (spec.p > 0) {
    forward_rows(in, bias, residual, out, rows, cols, masked_by(spec, cols));
  } else {
    forward_rows(in, bias, residual, out, rows, cols, unmasked(cols));
  }
}

template <class T>
void backward(const T* dout, T* din, float* dbias, std::int64_t rows, std::int64_t cols,
              const DropoutSpec& spec) {
  if (spec.p > 0) {
    backward_rows(dout, din, dbias, rows, cols, masked_by(spec, cols));
  } else {
    backward_rows(dout, din, dbias, rows, cols, unmasked(cols));
  }
}

}  // namespace

void fill(ForBoth<DropoutTable>& tables) {
  tables = {{forward<float>, backward<float>}, {forward<BFloat16>, backward<BFloat16>}};
}

}  // namespace fourfold::kernels::CPU_CAPABILITY
