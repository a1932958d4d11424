#include "policy/head_layout.h"

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

HeadLayout head_layout_of(const RunSpec& run) {
  const std::int64_t bytes = run.train.precision == Precision::kBf16 ? 2 : 4;
  return choose_head_layout(run.parallel.grid, run.model.vocab, run.model.hidden,
                            run.train.micro_batch * run.train.seq_len, run.model.tie_embeddings,
                            bytes);
}

}  // namespace fourfold
