#pragma once

#include <ATen/core/TensorBody.h>

namespace fourfold {

// The three products of a linear layer whose weight w is [n, k]. All operands are dense 2-D
// tensors of the compute type.

/// Forward: x [m, k] · wᵀ → [m, n].
at::Tensor product_forward(const at::Tensor& x, const at::Tensor& w);

/// Gradient of the input: dy [m, n] · w → [m, k].
at::Tensor product_input_gradient(const at::Tensor& dy, const at::Tensor& w);
/// The same into `out`, which is dense.
void product_input_gradient(const at::Tensor& dy, const at::Tensor& w, at::Tensor out);

/// Gradient of the weight: out [n, k] f32 := dyᵀ · x, or += when `accumulate`.
void product_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& out,
                             bool accumulate);

}  // namespace fourfold
