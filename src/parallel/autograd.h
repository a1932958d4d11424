#pragma once

#include <ATen/core/TensorBody.h>

#include "parallel/linear.h"

namespace fourfold {

/// A 4D layer in a module of the user's own, as LibTorch's autograd sees it: x [rows of this rank,
/// in] → [rows of this rank, out], with its bias. Every rank calls it with rows of its own, in the
/// same order as the other layers; backward runs the layer's and adds the gradients of its
/// parameters to Parameter::gradient and, of the bias, to VectorBlock::gradient(): after the last
/// backward of a step, GradientSync sums them. The layer has one member and no scheduler; it and
/// the context live until backward has run. Errors come from the collectives.
at::Tensor data_parallel_linear(const ParallelContext& context, Linear4D& layer,
                                const at::Tensor& x);

}  // namespace fourfold
