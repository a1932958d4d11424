#pragma once

#include "policy/head_layout.h"
#include "spec/run_spec.h"

namespace fourfold {

/// The head's layout for a run.
inline HeadLayout head_layout_of(const RunSpec& run) {
  const std::int64_t bytes = run.train.precision == Precision::kBf16 ? 2 : 4;
  return choose_head_layout(run.parallel.grid, run.model.vocab, run.model.hidden,
                            run.train.micro_batch * run.train.seq_len, run.model.tie_embeddings,
                            bytes);
}

}  // namespace fourfold
