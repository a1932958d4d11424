#pragma once

#include <ATen/core/TensorBody.h>

#include <string>

namespace fourfold {

/// What the optimizer sees of a parameter: the rows that this rank updates. Dense tensors of equal
/// size, f32 but for `weight`.
struct OptimizerTensor {
  std::string name;
  at::Tensor master;
  at::Tensor gradient;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
  at::Tensor weight;    ///< The bf16 copy to write; undefined where the master is the weight.
  bool decay = true;    ///< Whether weight decay applies.
  bool counted = true;  ///< False where another rank counts these elements in the norm.
};

}  // namespace fourfold
