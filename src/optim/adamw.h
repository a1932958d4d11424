#pragma once

#include <span>

#include "optim/optimizer_tensor.h"

namespace fourfold {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

/// One update of AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization",
/// arXiv 1711.05101, Algorithm 2) of the rows of this rank. `update` counts from 1 and corrects the
/// moments' bias; gradients are multiplied by `gradient_scale` as they are read.
void adamw_update(const AdamWOptions& options, std::span<const OptimizerTensor> tensors,
                  std::int64_t update, double lr, double gradient_scale);

}  // namespace fourfold
