#include "policy/head_layout.h"

#include <algorithm>

#include "layout/region.h"

namespace fourfold {

HeadLayout choose_head_layout(const GridShape& grid, std::int64_t vocab, std::int64_t hidden,
                              std::int64_t rows, bool tied, std::int64_t element_bytes) {
  if (grid.y == 1) return HeadLayout::kReduceLogits;
  // Bytes per rank without the factor (Gy - 1) / Gy that all the collectives share.
  const double logits = 2.0 * rows * element_bytes * vocab / grid.x;
  double states = 2.0 * rows * element_bytes * hidden;
  if (tied) {
    const double block = static_cast<double>(vocab) / grid.x * hidden / grid.y;
    states += block * (element_bytes + 4);
  }
  return states < logits ? HeadLayout::kGatherHidden : HeadLayout::kReduceLogits;
}

AxisSet vocabulary_axes(HeadLayout layout) {
  return layout == HeadLayout::kGatherHidden ? AxisSet{Axis::kX, Axis::kY} : AxisSet{Axis::kX};
}

std::int64_t logits_chunk_rows(const GridShape& grid, HeadLayout layout, std::int64_t vocab,
                               std::int64_t element_bytes) {
  constexpr std::int64_t kLogitsBytes = std::int64_t{96} << 20, kFewest = 64;
  const int parts = Grid(grid).group_size(vocabulary_axes(layout));
  // The widest rank's vocabulary, so that all ranks cut alike.
  const std::int64_t widest = split_range(vocab, parts, 0).size();
  return std::max(kFewest, kLogitsBytes / (widest * element_bytes));
}

HeadLayout head_layout_of(const RunSpec& run) {
  const std::int64_t bytes = run.train.precision == Precision::kBf16 ? 2 : 4;
  return choose_head_layout(run.parallel.grid, run.model.vocab, run.model.hidden,
                            run.train.micro_batch * run.train.seq_len, run.model.tie_embeddings,
                            bytes);
}

}  // namespace fourfold
