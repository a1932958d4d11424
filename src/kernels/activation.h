#pragma once

#include <cstdint>

#include "base/bfloat16.h"

/// Activations of the MLP; T is float or BFloat16, the arithmetic float.
///
/// Experts weigh each row: with `row_scale`[rows] not null forward gives row_scale[row]·act(x).
/// Backward then takes the gradient of that and also writes drow_scale[row] = Σ_cols dout·act(x),
/// in one order whatever the threads.
namespace fourfold::kernels {

/// y = gelu(x + bias), the tanh form (Hendrycks, Gimpel 2016); `bias`[cols] may be null, y may be
/// x.
template <class T>
void bias_gelu_forward(const T* x, const float* bias, std::int64_t rows, std::int64_t cols, T* y,
                       const float* row_scale = nullptr);

/// dx = dy·gelu'(x + bias), from the x that forward got. dbias[cols] += Σ_rows dx unless null.
/// dx may be dy or x.
template <class T>
void bias_gelu_backward(const T* dy, const T* x, const float* bias, std::int64_t rows,
                        std::int64_t cols, T* dx, float* dbias, const float* row_scale = nullptr,
                        float* drow_scale = nullptr);

/// out[rows, width] = silu(gate)·up, where `gate_up` is [rows, 2·width]: gate then up in each row
/// (SwiGLU, Shazeer 2020).
template <class T>
void swiglu_forward(const T* gate_up, std::int64_t rows, std::int64_t width, T* out,
                    const float* row_scale = nullptr);

/// dgate_up[rows, 2·width] from dout[rows, width]. dgate_up may be gate_up.
template <class T>
void swiglu_backward(const T* dout, const T* gate_up, std::int64_t rows, std::int64_t width,
                     T* dgate_up, const float* row_scale = nullptr, float* drow_scale = nullptr);

}  // namespace fourfold::kernels
