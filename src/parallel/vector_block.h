#pragma once

#include "device/tensors.h"
#include "parallel/parameter.h"

namespace fourfold {

/// Vectors (norm gains, biases) that stay gathered: their values are read by many kernels, in f32
/// whatever the compute type, and their gradients are collected over all micro-batches before they
/// are summed over z once. Members lie one after the other in values() and gradient().
class VectorBlock : public ParameterGroup {
 public:
  VectorBlock(const ParallelContext& context, std::vector<ParameterSpec> specs);

  const float* values() const { return elements<float>(values_); }
  float* gradient() { return elements<float>(gradient_); }

  /// Fetches the values anew: after the weights were loaded or updated.
  void refresh();
  /// Sums the collected gradient over z into the stored gradient and clears it; once per step.
  void finish_gradient();

 private:
  at::Tensor values_;    ///< f32 [rows].
  at::Tensor gradient_;  ///< f32 [rows, 1].
};

}  // namespace fourfold
