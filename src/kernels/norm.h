#pragma once

#include <cstdint>

#include "base/bfloat16.h"

/// RMSNorm (Zhang, Sennrich 2019) and LayerNorm (Ba et al. 2016) over the rows of a dense [rows,
/// cols] matrix of T = float or BFloat16; statistics, gain, bias and their gradients are float.
///
/// Where the columns of a row are spread over ranks, a pass has two stages with a reduction between
/// them: forward `rms_sum_squares` (added over ranks) or `row_mean_m2` (merged by
/// `merge_mean_m2`), then `rstd_from_sum`, then `norm_apply`; backward `norm_backward_sums` (added
/// over ranks), then `norm_backward_apply`. On one rank the fused forms read memory once and give
/// the same bits. A null `mean` means RMSNorm throughout.
namespace fourfold::kernels {

/// sum_squares[row] = Σ x².
template <class T>
void rms_sum_squares(const T* x, std::int64_t rows, std::int64_t cols, float* sum_squares);

/// mean[row] of this part's columns, m2[row] = Σ (x - mean)².
template <class T>
void row_mean_m2(const T* x, std::int64_t rows, std::int64_t cols, float* mean, float* m2);

/// Merges the moments of `parts` parts in ascending order (Chan et al. 1979): `means` and `m2s` are
/// [parts, part_stride], of which the first `rows` of each part are used; `counts[part]` columns.
/// `part_stride` lets one gathered buffer [parts, 2, rows] serve both (stride 2·rows).
void merge_mean_m2(const float* means, const float* m2s, const std::int64_t* counts,
                   std::int64_t parts, std::int64_t part_stride, std::int64_t rows, float* mean,
                   float* m2);

/// rstd[row] = 1 / sqrt(sum[row] / cols + eps), `cols` being the global number; sum is Σ x² or M2.
/// May run in place.
void rstd_from_sum(const float* sum, std::int64_t rows, std::int64_t cols, float eps, float* rstd);

/// y = (x - mean)·rstd·gain + bias. `mean` and `bias` may be null, y may be x.
template <class T>
void norm_apply(const T* x, const float* mean, const float* rstd, const float* gain,
                const float* bias, std::int64_t rows, std::int64_t cols, T* y);

/// The whole of RMSNorm forward on one rank; keeps rstd[rows] for backward.
template <class T>
void rms_norm_forward(const T* x, const float* gain, float eps, std::int64_t rows,
                      std::int64_t cols, T* y, float* rstd);

/// The whole of LayerNorm forward on one rank; keeps mean[rows] and rstd[rows]. `bias` may be null.
template <class T>
void layer_norm_forward(const T* x, const float* gain, const float* bias, float eps,
                        std::int64_t rows, std::int64_t cols, T* y, float* mean, float* rstd);

/// The two sums per row that dx needs: sum_dy_g = Σ dy·gain (not written when `mean` is null; may
/// then be null) and sum_dy_g_xhat = Σ dy·gain·x̂, with x̂ = (x - mean)·rstd.
template <class T>
void norm_backward_sums(const T* dy, const T* x, const float* mean, const float* rstd,
                        const float* gain, std::int64_t rows, std::int64_t cols, float* sum_dy_g,
                        float* sum_dy_g_xhat);

/// dx = rstd·(dy·gain - (sum_dy_g + x̂·sum_dy_g_xhat) / global_cols) + residual, with sums over all
/// `global_cols` columns. `residual` (the gradient that bypasses the norm) may be null or dx; dx
/// may be dy. dgain[cols] += Σ_rows dy·x̂ and dbias[cols] += Σ_rows dy, each unless null.
template <class T>
void norm_backward_apply(const T* dy, const T* x, const float* mean, const float* rstd,
                         const float* gain, const float* sum_dy_g, const float* sum_dy_g_xhat,
                         std::int64_t global_cols, const T* residual, std::int64_t rows,
                         std::int64_t cols, T* dx, float* dgain, float* dbias);

/// Both stages of backward on one rank.
template <class T>
void norm_backward(const T* dy, const T* x, const float* mean, const float* rstd, const float* gain,
                   const T* residual, std::int64_t rows, std::int64_t cols, T* dx, float* dgain,
                   float* dbias);

}  // namespace fourfold::kernels
