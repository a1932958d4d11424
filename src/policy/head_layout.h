#pragma once

#include <cstdint>

#include "layout/grid.h"
#include "spec/run_spec.h"

namespace fourfold {

/// How the head's product is placed on a grid with Gy > 1.
enum class HeadLayout {
  /// Vocabulary over x, hidden over y, as any normal linear: the logits are all-reduced over y.
  kReduceLogits,
  /// Vocabulary over x·y, hidden whole: the hidden states are gathered over y and their gradient is
  /// reduce-scattered. Tied weights are exchanged over y, out and back, for each micro-batch.
  kGatherHidden,
};

/// The layout that moves fewer bytes in training, for `rows` tokens of a micro-batch (of this
/// (z, data) rank), activations of `element_bytes` and f32 gradients. With Gy = 1 there is nothing
/// to choose.
HeadLayout choose_head_layout(const GridShape& grid, std::int64_t vocab, std::int64_t hidden,
                              std::int64_t rows, bool tied, std::int64_t element_bytes);

/// The axes that split the vocabulary.
AxisSet vocabulary_axes(HeadLayout layout);

/// Rows whose logits exist at once: enough for full-speed products, little next to the activations.
/// The same on all ranks.
std::int64_t logits_chunk_rows(const GridShape& grid, HeadLayout layout, std::int64_t vocab,
                               std::int64_t element_bytes);

/// The layout that a run chooses on its grid.
HeadLayout head_layout_of(const RunSpec& run);

}  // namespace fourfold
