#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/async.h"
#include "layout/exchange_plan.h"
#include "parallel/vector_block.h"
#include "parallel/weight_block.h"
#include "policy/model_layers.h"
#include "spec/model_spec.h"

namespace fourfold {

/// The experts of a layer that this rank holds: MLPs split over x and y as a dense one is, whose
/// products go by expert. A row of the input is a token with one of its experts and that expert's
/// weight w, which multiplies the activation: expert(x) = (w·act(x·Upᵀ))·Downᵀ, so that backward
/// needs no outputs. Rows lie by expert; an expert may have none.
class Experts {
 public:
  Experts(const ParallelContext& context, const ModelSpec& spec, const MoeLayers& layers);

  /// Weights for all chunks of a pass: gathered once.
  struct Gathered {
    at::Tensor up, down;
  };
  Gathered gather() const { return {up_.gather(), down_.gather()}; }
  /// In the order of backward.
  Gathered gather_for_backward() const {
    at::Tensor down = down_.gather();
    return {up_.gather(), std::move(down)};
  }

  /// What backward needs of a chunk.
  struct Saved {
    at::Tensor input;      ///< [rows, hidden of this rank].
    at::Tensor weights;    ///< f32 [rows, 1].
    at::Tensor up;         ///< As Mlp::Saved::up.
    at::Tensor activated;  ///< [rows, width of this rank], weighted.
  };
  /// A part of this rank's experts and how many rows each of them has.
  struct Part {
    Range slots;
    const std::vector<std::int64_t>* rows = nullptr;
  };
  Part part(int chunks, int chunk, const std::vector<std::int64_t>& rows) const;

  /// From saved.input and .weights to `output`, [rows, hidden of this rank], a partial sum on each
  /// x.
  Async<void> forward(const Part& part, const Gathered& gathered, Saved& saved,
                      const at::Tensor& output) const;
  /// Computes again what `saved` lacks besides input and weights; `up` is Gathered::up.
  Async<void> restore(const Part& part, const at::Tensor& up, Saved& saved) const;

  /// Where the gradients of both matrices go, of all chunks.
  struct Targets {
    WeightBlock::GradientTarget up, down;
  };
  struct Gradients {
    at::Tensor input;    ///< [rows, hidden of this rank], a partial sum on each x.
    at::Tensor weights;  ///< f32 [rows, 1], the same.
  };
  Targets targets() { return {up_.gradient_target(), down_.gradient_target()}; }
  void add_gradients(const Targets& targets) {
    down_.add_gradient(targets.down);
    up_.add_gradient(targets.up);
  }
  /// Fills `gradients`.
  Async<void> backward(const Part& part, const Gathered& gathered, const Targets& targets,
                       const at::Tensor& d_output, const Saved& saved, const Gradients& gradients);

  at::Tensor gather_up() const { return up_.gather(); }

  WeightBlock& up() { return up_; }
  WeightBlock& down() { return down_; }
  /// Null where the model has no biases.
  VectorBlock* up_bias() { return up_bias_.get(); }
  VectorBlock* down_bias() { return down_bias_.get(); }

 private:
  void activate(const Part& part, Saved& saved) const;
  /// Gradient of the activation's input; the weights' into `d_weights`.
  at::Tensor activate_backward(const Part& part, const at::Tensor& d_activated, const Saved& saved,
                               const at::Tensor& d_weights);
  /// output += w·bias on one rank of x, once in the sum.
  void add_down_bias(const Part& part, const at::Tensor& output, const Saved& saved) const;
  Async<void> down_bias_backward(const Part& part, const at::Tensor& d_output, const Saved& saved,
                                 const at::Tensor& d_weights);
  /// Calls f(slot among this rank's experts, first row, rows) for those of the part that have rows.
  template <class F>
  static void each_expert(const Part& part, F f);

  const ParallelContext& context_;
  bool gated_;
  std::int64_t slots_;                 ///< Experts of this rank.
  std::int64_t up_width_, out_width_;  ///< Of this rank: rows of one expert in up and in down.
  WeightBlock up_, down_;
  std::unique_ptr<VectorBlock> up_bias_, down_bias_;
};

}  // namespace fourfold
