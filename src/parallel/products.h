#pragma once

#include <ATen/core/TensorBody.h>

namespace fourfold {

/// How f32 is multiplied.
enum class F32Products {
  kF32,
  kThreeBf16,  ///< On tiles for bf16 (kernels/tile_product.h), where has_tile_product().
};

// The three products of a linear layer whose weight w is [n, k]. All operands are dense 2-D
// tensors of the compute type.

/// Forward: x [m, k] · wᵀ → [m, n].
at::Tensor product_forward(const at::Tensor& x, const at::Tensor& w,
                           F32Products how = F32Products::kF32);

/// Gradient of the input: dy [m, n] · w → [m, k].
at::Tensor product_input_gradient(const at::Tensor& dy, const at::Tensor& w,
                                  F32Products how = F32Products::kF32);
/// The same into `out`, which is dense.
void product_input_gradient(const at::Tensor& dy, const at::Tensor& w, at::Tensor out,
                            F32Products how = F32Products::kF32);

/// Gradient of the weight: out [n, k] f32 := dyᵀ · x, or += when `accumulate`.
void product_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& out,
                             bool accumulate, F32Products how = F32Products::kF32);

}  // namespace fourfold
