#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "model/block.h"
#include "parallel/embedding.h"
#include "parallel/vocab_loss.h"

namespace fourfold {

/// How a model is laid out and run; no choice changes what it computes.
struct TransformerOptions {
  HeadLayout head_layout = HeadLayout::kReduceLogits;
  /// Of each block, what backward need not compute again; empty: all is kept.
  std::vector<KeptActivations> kept;
  MoeOptions moe;
  bool sequence_parallel = false;  ///< The residual stream is cut over x by rows.
  bool sp_regather = true;         ///< Its normed rows are gathered again in backward.
};

/// A decoder-only transformer on the grid: embedding, blocks, final norm, head. The GPT-2 and Llama
/// families differ by their ModelSpec only. Forward and backward are program text; there is no
/// tape.
class Transformer {
 public:
  /// Collective: fetches the vectors that stay gathered.
  Transformer(const ParallelContext& context, const ModelSpec& spec,
              const TransformerOptions& options);

  /// One micro-batch: returns the sum over its rows of the cross-entropy and adds the gradient of
  /// scale · that sum to the parameters' gradients. Gradients of vectors are complete after the
  /// units' finish_gradients(). `passed` is called with each unit whose gradients the rest of the
  /// pass does not touch. Collective over x, y and z.
  using Passed = std::function<void(const ParameterUnit&)>;
  double forward_backward(const MicroBatch& batch, float scale, const Passed& passed = {});
  /// In how many slices (OverlapOptions) forward_backward takes the batch: of a sequence at least.
  int slices_of(const MicroBatch& batch) const;
  /// The loss sum alone, without dropout if the batch says so.
  double forward(const MicroBatch& batch) const;

  /// Generation: logits [sequences, vocabulary of this rank] of the last position of each sequence,
  /// after the batch's positions were appended to the caches.
  at::Tensor decode(const MicroBatch& batch, std::vector<KvCache>& caches) const;
  std::vector<KvCache> make_caches(std::int64_t sequences, std::int64_t capacity) const;
  Range vocabulary() const { return loss_->vocabulary(); }

  /// Embedding, blocks, end: the order of the forward pass, the same on every rank.
  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Those of all units.
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  const ModelSpec& spec() const { return spec_; }

 private:
  Transformer(const ParallelContext& context, const ModelSpec& spec,
              const TransformerOptions& options, const ModelLayers& layers);
  // The passes of one slice of a micro-batch; they stand still at collectives.
  Async<double> pass(const MicroBatch& batch, float scale, Passed passed);
  Async<double> pass_forward(const MicroBatch& batch) const;
  Async<at::Tensor> pass_decode(const MicroBatch& batch, std::vector<KvCache>& caches) const;
  Async<at::Tensor> embed(const MicroBatch& batch, std::int64_t first_position) const;
  Async<void> embed_backward(const MicroBatch& batch, const at::Tensor& d_hidden);
  /// From the last block's output to its gradient.
  Async<at::Tensor> head_forward_backward(const at::Tensor& hidden, const MicroBatch& batch,
                                          float scale, double& loss_sum);
  /// The vectors of a unit are about to be used.
  void enter(const ParameterUnit& unit) const;
  KeptActivations kept(std::size_t block) const {
    return options_.kept.empty() ? KeptActivations() : options_.kept[block];
  }
  void collect_units();

  const ParallelContext& context_;
  ModelSpec spec_;
  TransformerOptions options_;
  StreamRows stream_;
  Embedding4D embedding_;
  std::vector<std::unique_ptr<Block>> blocks_;
  Norm4D final_norm_;
  std::unique_ptr<WeightBlock> head_;  ///< Null when tied.
  std::unique_ptr<VocabLoss> loss_;
  std::vector<ParameterUnit> units_;
  std::vector<Parameter*> parameters_;
};

}  // namespace fourfold
