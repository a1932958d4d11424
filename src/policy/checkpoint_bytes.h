#pragma once

#include <cstdint>

#include "spec/model_spec.h"
#include "spec/run_spec.h"

namespace fourfold {

/// Bytes of a checkpoint's tensors, by kind, to the byte; files' headers and the manifest come on
/// top.
struct CheckpointBytes {
  std::int64_t weight = 0;  ///< 2 bytes a parameter in bf16 runs; fp32 runs store none.
  std::int64_t master = 0;
  std::int64_t exp_avg = 0;
  std::int64_t exp_avg_sq = 0;

  std::int64_t total() const { return weight + master + exp_avg + exp_avg_sq; }
};

/// What a run stores in each checkpoint, whatever its grid, with all of its experts.
CheckpointBytes checkpoint_bytes(const ModelSpec& model, Precision precision);

/// Part of it: the experts that tokens are routed to, not the shared ones.
CheckpointBytes expert_bytes(const ModelSpec& model, Precision precision);

}  // namespace fourfold
