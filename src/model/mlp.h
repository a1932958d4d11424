#pragma once

#include "parallel/linear.h"
#include "policy/model_layers.h"

namespace fourfold {

/// The MLP of a block: up (and gate) normal, down transposed, GELU or SwiGLU between.
class Mlp {
 public:
  Mlp(const ParallelContext& context, const ModelSpec& spec, const BlockLayers& layers);

  /// What backward needs besides the input.
  struct Saved {
    /// Before the activation: [rows, ffn], without its bias, or [rows, 2·ffn] (gate | up), with it.
    at::Tensor up;
    at::Tensor activated;  ///< [rows, ffn of this rank].
  };

  /// x [rows, hidden of this rank] → the same shape, without the down projection's bias, which the
  /// residual's kernel adds.
  Async<at::Tensor> forward(const at::Tensor& x, Saved& saved) const;
  /// Whether restore() needs x.
  static bool needs_input(const Saved& saved) { return !saved.up.defined(); }
  /// Computes again what `saved` lacks.
  Async<void> restore(const at::Tensor& x, Saved& saved) const;
  Async<at::Tensor> backward(const at::Tensor& x, const at::Tensor& d_output, const Saved& saved);

  Linear4D& up() { return up_; }
  Linear4D& down() { return down_; }
  const Linear4D& down() const { return down_; }

 private:
  /// Of a gated MLP, in place; without a gate the activation's kernel adds it.
  void add_bias(const at::Tensor& up) const;
  at::Tensor activate(const at::Tensor& up) const;
  at::Tensor activate_backward(const at::Tensor& d_activated, const at::Tensor& up);

  const ParallelContext& context_;
  bool gated_;
  Linear4D up_;
  Linear4D down_;
};

}  // namespace fourfold
