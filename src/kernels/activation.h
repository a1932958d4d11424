#pragma once

#include <cstdint>

#include "base/bfloat16.h"

/// Activations of the MLP; T is float or BFloat16, the arithmetic float.
namespace fourfold::kernels {

/// y = gelu(x + bias), the tanh form (Hendrycks, Gimpel 2016); `bias`[cols] may be null, y may be
/// x.
template <class T>
void bias_gelu_forward(const T* x, const float* bias, std::int64_t rows, std::int64_t cols, T* y);

/// dx = dy·gelu'(x + bias), from the x that forward got. dbias[cols] += Σ_rows dx unless null.
/// dx may be dy or x.
template <class T>
void bias_gelu_backward(const T* dy, const T* x, const float* bias, std::int64_t rows,
                        std::int64_t cols, T* dx, float* dbias);

/// out[rows, width] = silu(gate)·up, where `gate_up` is [rows, 2·width]: gate then up in each row
/// (SwiGLU, Shazeer 2020).
template <class T>
void swiglu_forward(const T* gate_up, std::int64_t rows, std::int64_t width, T* out);

/// dgate_up[rows, 2·width] from dout[rows, width]. dgate_up may be gate_up.
template <class T>
void swiglu_backward(const T* dout, const T* gate_up, std::int64_t rows, std::int64_t width,
                     T* dgate_up);

}  // namespace fourfold::kernels
