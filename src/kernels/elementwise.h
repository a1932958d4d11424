#pragma once

#include <cstdint>

#include "base/bfloat16.h"

/// Passes over n elements, and column sums. T is float or BFloat16; bf16 is rounded to nearest
/// even.
namespace fourfold::kernels {

void cast(const float* from, BFloat16* to, std::int64_t n);
void cast(const BFloat16* from, float* to, std::int64_t n);

/// sum += x.
template <class T>
void accumulate(float* sum, const T* x, std::int64_t n);

/// x *= factor.
template <class T>
void scale(T* x, float factor, std::int64_t n);

/// out = a + b; out may be a or b.
template <class T>
void add(const T* a, const T* b, T* out, std::int64_t n);

/// x[row] += bias, x being [rows, cols].
template <class T>
void add_bias(T* x, const float* bias, std::int64_t rows, std::int64_t cols);

/// x[row] += row_scale[row]·bias, x being [rows, cols]; and what follows for the gradients from
/// that of the sum: dbias[col] += Σ_rows row_scale·dy, drow_scale[row] = Σ_cols bias·dy.
template <class T>
void add_scaled_bias(T* x, const float* bias, const float* row_scale, std::int64_t rows,
                     std::int64_t cols);
template <class T>
void scaled_bias_backward(const T* dy, const float* bias, const float* row_scale, std::int64_t rows,
                          std::int64_t cols, float* dbias, float* drow_scale);

/// sums[col] += Σ_rows x[row, col].
template <class T>
void column_sums(const T* x, std::int64_t rows, std::int64_t cols, float* sums);

}  // namespace fourfold::kernels
