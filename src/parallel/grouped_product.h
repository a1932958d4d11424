#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>
#include <span>

#include "parallel/products.h"

namespace fourfold {

// The three products of products.h for G linear layers of one shape at once, the experts of a rank:
// x and dy hold the rows of group 0, then of group 1, ..., rows_of_group[g] of each (perhaps none),
// R in all; w [G·n, k] holds the groups' weights [n, k] one under another. All operands are dense
// 2-D tensors of the compute type.
//
// A group has few rows, so that a product of it alone neither fills the intra-op threads nor pays
// for their meeting: each thread takes an even share of the whole work, some groups and a slice of
// the first and last of them, and multiplies alone.

/// Forward: rows of x [R, k] · wᵀ of their group → out [R, n].
void grouped_product_forward(const at::Tensor& x, const at::Tensor& w,
                             std::span<const std::int64_t> rows_of_group, at::Tensor out,
                             F32Products how = F32Products::kF32);

/// Gradient of the input: rows of dy [R, n] · w of their group → out [R, k].
void grouped_product_input_gradient(const at::Tensor& dy, const at::Tensor& w,
                                    std::span<const std::int64_t> rows_of_group, at::Tensor out,
                                    F32Products how = F32Products::kF32);

/// Gradient of the weights: out [G·n, k] f32 := dyᵀ · x of each group, or += when `accumulate`. A
/// group without rows has zeros.
void grouped_product_weight_gradient(const at::Tensor& dy, const at::Tensor& x,
                                     std::span<const std::int64_t> rows_of_group,
                                     const at::Tensor& out, bool accumulate,
                                     F32Products how = F32Products::kF32);

}  // namespace fourfold
