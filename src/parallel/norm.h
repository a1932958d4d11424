#pragma once

#include "base/async.h"
#include "layout/layer_specs.h"
#include "parallel/vector_block.h"

namespace fourfold {

/// LayerNorm or RMSNorm of rows whose features are split over y. The statistics are those of the
/// whole row: one collective over y with two floats a row (RMSNorm: one) in each direction.
class Norm4D {
 public:
  Norm4D(const ParallelContext& context, const NormSpec& spec);

  /// What backward needs besides the input: f32 [rows]; mean is undefined for RMSNorm.
  struct Statistics {
    at::Tensor mean, rstd;
  };

  /// x [rows, width of this rank] → the same shape.
  Async<at::Tensor> forward(const at::Tensor& x, Statistics& statistics) const;
  /// The same again from its statistics, the same bits.
  at::Tensor apply(const at::Tensor& x, const Statistics& statistics) const;
  /// dx := gradient of x from dy, plus `residual`: the gradient that bypasses the norm (may be
  /// undefined). Adds the gain's and bias's gradients.
  Async<at::Tensor> backward(const at::Tensor& dy, const at::Tensor& x,
                             const Statistics& statistics, const at::Tensor& residual);

  VectorBlock& parameters() { return parameters_; }

 private:
  /// Fills the statistics over whole rows, reduced over y.
  Async<void> reduce_statistics(const at::Tensor& x, Statistics& statistics) const;

  const float* gain() const { return parameters_.values(); }
  const float* bias() const { return spec_.bias ? parameters_.values() + local_width_ : nullptr; }

  const ParallelContext& context_;
  NormSpec spec_;
  VectorBlock parameters_;  ///< Gain, then bias.
  std::int64_t local_width_;
};

}  // namespace fourfold
