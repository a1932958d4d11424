#pragma once

#include <vector>

#include "base/async.h"
#include "model/micro_batch.h"
#include "model/routing.h"
#include "parallel/stream_rows.h"
#include "parallel/weight_block.h"
#include "policy/model_layers.h"

namespace fourfold {

/// Scores each token for each expert and chooses its top k. The product is in f32 with hidden over
/// y, so the logits are summed over y and the same on all x and y; the choice is that of x = y = 0.
/// Of a stream that is cut over x each rank scores its own rows, and the logits are gathered.
///
/// Of the losses that it adds to the model's, with T the tokens of a step and N the experts:
///   balance  aux_coef·N/T · Σ_tokens Σ_experts f·p, where p is the token's probability of the
///            expert and f the expert's share of the assignments in the token's balance scope,
///            taken as a constant (Switch Transformer, arXiv 2101.03961, eq. 4-6);
///   z        z_coef/T · Σ_tokens log²(Σ exp(logit)) (ST-MoE, arXiv 2202.08906, eq. 5).
/// Both are sums over tokens, so they are the same on every grid where the scope is.
class Router {
 public:
  /// `local_bias`: of each expert's score, for the choice alone; empty: none.
  Router(const ParallelContext& context, const MoeSpec& spec, const MoeLayers& layers, int block,
         std::vector<float> local_bias = {});

  /// What the exchange and backward need: of all rows.
  struct Saved {
    at::Tensor logits, scores;         ///< f32 [rows, experts].
    at::Tensor weights;                ///< f32 [rows, top_k], of the chosen experts.
    at::Tensor share;                  ///< f32 [scopes, experts]: f of the balance loss.
    std::vector<std::int32_t> chosen;  ///< [rows, top_k].
    std::vector<std::int32_t> taken;   ///< The same with -1 where an expert was full.
  };

  /// x [the stream's rows on this rank, hidden of this rank].
  Async<void> forward(const at::Tensor& x, const MicroBatch& batch, Saved& saved) const;
  /// Gradient of x from that of the weights, f32 [rows of x, top_k], and of its own losses; f32,
  /// summed over nothing: it is whole. Adds the weight's gradient.
  Async<at::Tensor> backward(const at::Tensor& x, const MicroBatch& batch, const Saved& saved,
                             const at::Tensor& d_weights);

  WeightBlock& weights() { return weights_; }

 private:
  /// The input of the product: x in f32, in training times 1 ± jitter.
  at::Tensor operand(const at::Tensor& x, const MicroBatch& batch) const;
  Async<void> choose(const MicroBatch& batch, Saved& saved) const;
  void choose_here(const MicroBatch& batch, Saved& saved) const;
  /// What is added to scores for the choice; empty: nothing.
  std::vector<float> choice_bias(const MicroBatch& batch) const;
  void record(const MicroBatch& batch, const Saved& saved, const std::vector<float>& margin) const;
  /// Experts in turn, or imposed choices.
  void overrule(const MicroBatch& batch, Saved& saved) const;
  Async<void> limit_to_capacity(const MicroBatch& batch, Saved& saved) const;
  /// Assignments to each expert in each scope of the batch, f64 [scopes, experts].
  std::vector<double> counts_by_scope(const MicroBatch& batch, const Saved& saved) const;
  Async<void> find_share(const MicroBatch& batch, Saved& saved) const;
  void tally(const MicroBatch& batch, const Saved& saved) const;

  std::int64_t scopes(const MicroBatch& batch) const;
  std::int64_t experts() const { return spec_.experts; }

  at::Tensor logits_gradient(const MicroBatch& batch, const Saved& saved,
                             const at::Tensor& d_weights) const;

  const ParallelContext& context_;
  StreamRows stream_;
  MoeSpec spec_;
  int block_;
  std::vector<float> local_bias_;
  WeightBlock weights_;
};

}  // namespace fourfold
