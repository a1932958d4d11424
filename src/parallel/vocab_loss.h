#pragma once

#include "base/async.h"
#include "parallel/stream_rows.h"
#include "parallel/weight_block.h"
#include "policy/head_layout.h"

namespace fourfold {

/// The head and the cross-entropy over the vocabulary, as one. Logits exist for one chunk of rows
/// at a time and are never gathered: the row's maximum, its sum of exponentials and the target's
/// logit are reduced over the axes that split the vocabulary; the gradient is made in the logits'
/// place. With `scale` known beforehand one pass gives loss and gradient. Where the vocabulary is
/// split, over x alone or over x and y, is HeadLayout's choice (policy/head_layout.h).
class VocabLoss {
 public:
  /// `weights` [vocab, hidden] outlives this. Tied ones are the embedding's table, vocabulary over
  /// x and hidden over y whatever the layout; the head's own are laid out by model_layers().
  VocabLoss(const ParallelContext& context, WeightBlock& weights, HeadLayout layout, bool tied,
            const StreamRows& stream);

  /// What training gets from the rows of one micro-batch.
  struct Result {
    double loss_sum = 0;  ///< Sum over rows of -log p(target): the same on all x and y.
    at::Tensor d_hidden;  ///< Gradient of scale · loss_sum by `hidden`, reduced.
  };
  /// hidden [rows of this rank, hidden of this rank], targets int64 [rows]; rows with a negative
  /// target count for nothing. Adds the weight's gradient.
  Async<Result> forward_backward(const at::Tensor& hidden, const at::Tensor& targets, float scale);
  /// The loss sum alone.
  Async<double> forward(const at::Tensor& hidden, const at::Tensor& targets) const;
  /// Logits [rows, vocabulary of this rank]: for generation, few rows at a time.
  at::Tensor logits(const at::Tensor& hidden) const;
  /// The part of the vocabulary that this rank computes.
  Range vocabulary() const { return vocabulary_; }

 private:
  /// Per-row statistics of a chunk, f32 [rows]: reduced over the axes that split the vocabulary.
  struct RowStatistics {
    at::Tensor max;
    at::Tensor sums;  ///< [2, rows]: sum of exponentials, target logit.
  };
  bool gathers() const { return layout_ == HeadLayout::kGatherHidden; }
  /// The hidden states as the product takes them, and the weight: [vocabulary(), their width].
  at::Tensor operand(const at::Tensor& hidden) const;
  at::Tensor weight() const;
  /// Loss and gradients of the operand (into `d_operand`) and the weight (into `target`).
  double run_chunks(const at::Tensor& operand, const at::Tensor& targets, float scale,
                    const at::Tensor& d_operand, const WeightBlock::GradientTarget& target);
  WeightBlock::GradientTarget gradient_target();
  void add_gradient(const WeightBlock::GradientTarget& target);
  at::Tensor chunk_logits(const at::Tensor& operand, const at::Tensor& weight) const;
  /// The logits' gradient in their place.
  void make_gradient(const at::Tensor& logits, const RowStatistics& s, const at::Tensor& targets,
                     float scale) const;
  RowStatistics reduce_rows(const at::Tensor& logits, const at::Tensor& targets) const;
  static double loss_of(const RowStatistics& statistics, const at::Tensor& targets);
  std::int64_t rows_per_chunk() const;

  const ParallelContext& context_;
  WeightBlock& weights_;
  HeadLayout layout_;
  StreamRows stream_;
  bool exchanges_;               ///< Tied weights in the gathered layout.
  std::int64_t vocab_, hidden_;  ///< Global.
  Range vocabulary_;
};

}  // namespace fourfold
