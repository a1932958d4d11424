#pragma once

#include <memory>

#include "parallel/weight_block.h"

namespace fourfold {

/// The head and the cross-entropy over the vocabulary, as one: vocabulary over x, hidden over y (a
/// normal linear). Logits exist for one chunk of rows at a time and are never gathered: the row's
/// maximum, its sum of exponentials and the target's logit are reduced over x; the gradient is made
/// in the logits' place. With `scale` known beforehand one pass gives loss and gradient.
class VocabLoss {
 public:
  /// `weights` [vocab, hidden] may be the embedding's (tied); outlives this.
  VocabLoss(const ParallelContext& context, WeightBlock& weights);

  /// What training gets from the rows of one micro-batch.
  struct Result {
    double loss_sum = 0;  ///< Sum over rows of -log p(target): the same on all x and y.
    at::Tensor d_hidden;  ///< Gradient of scale · loss_sum, reduced over x.
  };
  /// hidden [rows, hidden of this rank], targets int64 [rows]; rows with a negative target count
  /// for nothing. Adds the weight's gradient.
  Result forward_backward(const at::Tensor& hidden, const at::Tensor& targets, float scale);
  /// The loss sum alone.
  double forward(const at::Tensor& hidden, const at::Tensor& targets) const;
  /// Logits [rows, vocabulary of this rank], reduced over y: for generation, few rows at a time.
  at::Tensor logits(const at::Tensor& hidden) const;
  /// The part of the vocabulary that this rank holds.
  Range vocabulary() const { return weights_.parameters().front().block.dims[0]; }

 private:
  /// Per-row statistics of a chunk, f32 [rows]: reduced over x.
  struct RowStatistics {
    at::Tensor max;
    at::Tensor sums;  ///< [2, rows]: sum of exponentials, target logit.
  };
  at::Tensor chunk_logits(const at::Tensor& hidden, const at::Tensor& weight) const;
  RowStatistics reduce_rows(const at::Tensor& logits, const at::Tensor& targets) const;
  static double loss_of(const RowStatistics& statistics, const at::Tensor& targets);
  std::int64_t rows_per_chunk() const;

  const ParallelContext& context_;
  WeightBlock& weights_;
};

}  // namespace fourfold
