#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <vector>

#include "model/routing.h"

namespace fourfold {

/// The sequences of one forward pass of one (z, data) rank; the same on all its x and y.
struct MicroBatch {
  at::Tensor tokens;   ///< int64 [sequences · seq].
  at::Tensor targets;  ///< int64 [sequences · seq]; undefined in generation.
  /// Number of each sequence within the step, over the whole global batch: with the position it
  /// keys dropout, so that neither grid nor accumulation changes a mask.
  std::vector<std::int64_t> samples;
  std::int64_t seq = 0;
  std::int64_t step = 0;
  bool dropout = false;  ///< On in training.
  float loss_scale = 0;  ///< What backward multiplies the sum of losses with: 1 / tokens of a step.
  Routing routing;       ///< Of a model with experts.

  std::int64_t rows() const { return tokens.numel(); }
  /// The `index`-th of `slices` parts of the sequences, which differ by one at most, as views.
  MicroBatch slice(int slices, int index) const;
};

}  // namespace fourfold
