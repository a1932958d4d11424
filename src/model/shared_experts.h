#pragma once

#include <memory>

#include "model/mlp.h"
#include "parallel/parameter_unit.h"
#include "parallel/stream_rows.h"

namespace fourfold {

/// Experts that every token takes, as one MLP of their widths together; with a gate its output is
/// multiplied by sigmoid(x·gateᵀ), a number for each token (DeepSeekMoE, arXiv 2401.06066; the gate
/// as in Qwen1.5-MoE).
class SharedExperts {
 public:
  SharedExperts(const ParallelContext& context, const ModelSpec& spec, const BlockLayers& layers);

  /// What backward needs besides the input.
  struct Saved {
    Mlp::Saved mlp;
    at::Tensor output;  ///< With a gate: before it, [rows, hidden of this rank].
    at::Tensor gate;    ///< The sigmoid, f32 [rows, 1].
  };

  /// x [rows, hidden of this rank] → the stream's rows on this rank, with the bias.
  Async<at::Tensor> forward(const at::Tensor& x, Saved& saved) const;
  /// Whether restore() needs x.
  static bool needs_input(const Saved& saved) { return Mlp::needs_input(saved.mlp); }
  /// Computes again what `saved` lacks of the MLP.
  Async<void> restore(const at::Tensor& x, Saved& saved) const {
    return mlp_.restore(x, saved.mlp);
  }
  /// x as given to forward, or the stream's rows of it on this rank.
  Async<at::Tensor> backward(const at::Tensor& x, const at::Tensor& d_output, const Saved& saved);

  void add_to(ParameterUnit& unit);

 private:
  Async<at::Tensor> gate_backward(const at::Tensor& x, const at::Tensor& d_output,
                                  const Saved& saved);

  /// The stream's rows on this rank, as many as `own` has, of x.
  at::Tensor own_rows(const at::Tensor& x, const at::Tensor& own) const {
    return x.size(0) == own.size(0) ? x : stream_.own_of(x);
  }

  const ParallelContext& context_;
  StreamRows stream_;
  Mlp mlp_;
  std::unique_ptr<WeightBlock> gate_;  ///< [1, hidden]; null without.
};

}  // namespace fourfold
