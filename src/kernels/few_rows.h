#pragma once

#include <cstdint>

namespace fourfold::kernels {

// The products of a linear layer with few rows on the calling thread alone: where a library spends
// its time on packing the weights and waiting for them. Here the weights are read once, fetched
// ahead, and their gradient is written once. x [rows, k], dy [rows, n] and the weight w [n, k] are
// dense but for the strides given, in elements.

/// Up to how many rows these are faster than LibTorch's on this CPU: forward, and both gradients.
std::int64_t few_rows_forward_limit();
std::int64_t few_rows_gradient_limit();

/// y [rows, n] = x · wᵀ, the rows of y `y_stride` apart.
void few_rows_forward(const float* x, const float* w, std::int64_t rows, std::int64_t n,
                      std::int64_t k, float* y, std::int64_t y_stride);

/// dx [rows, k] = dy · w, the rows of w and dx so far apart: a range of columns of larger ones.
void few_rows_input_gradient(const float* dy, const float* w, std::int64_t w_stride,
                             std::int64_t rows, std::int64_t n, std::int64_t k, float* dx,
                             std::int64_t dx_stride);

/// dw [n, k] = dyᵀ · x, or += where `accumulate`; the rows of dy so far apart.
void few_rows_weight_gradient(const float* dy, std::int64_t dy_stride, const float* x,
                              std::int64_t rows, std::int64_t n, std::int64_t k, float* dw,
                              bool accumulate);

}  // namespace fourfold::kernels
