#pragma once

#include <cstdint>

#include "layout/grid.h"
#include "plan/moe_memory.h"
#include "spec/run_spec.h"

namespace fourfold {

/// Bytes that one rank holds at the fullest moment of a training step, by part.
struct MemoryParts {
  std::int64_t weights = 0;    ///< Stored, in the compute type, and the vectors that stay gathered.
  std::int64_t gradients = 0;  ///< Stored, f32.
  std::int64_t masters = 0;    ///< f32; in fp32 runs the weights are the masters.
  std::int64_t moments = 0;
  std::int64_t gathered = 0;     ///< Weights gathered over z: for their use, ahead of it, cached.
  std::int64_t scattering = 0;   ///< Gradients of whole matrices on their way over z.
  std::int64_t activations = 0;  ///< Kept from forward to backward.
  std::int64_t working = 0;      ///< What a block's backward, or the head, holds besides.

  std::int64_t state() const { return weights + gradients + masters + moments; }
  std::int64_t total() const { return state() + gathered + scattering + activations + working; }
};

/// The moments at which memory can be fullest.
struct MemoryPrediction {
  MemoryParts head;  ///< Of the head and the loss: all activations, the logits of a chunk.
  /// Of a block's backward, the fullest one's: the activations that are still there, what is
  /// restored.
  MemoryParts backward;
  const MemoryParts& peak() const { return head.total() > backward.total() ? head : backward; }
};

/// Of the rank at `at`; uneven cuts make rank (0, 0, 0, 0) the fullest. What messages need in the
/// communicator, what is packed for the data axis (a few MiB each) and the tensors' headers are
/// left out.
MemoryPrediction predict_memory(const RunSpec& run, Coords at = {},
                                ExpertLoad load = ExpertLoad::kEven);

}  // namespace fourfold
