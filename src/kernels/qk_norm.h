#pragma once

#include <cstdint>

#include "base/bfloat16.h"

/// RMSNorm of the queries or keys of attention where they lie, in the rows of a fused q|k|v buffer:
/// of each head by itself (Qwen3, arXiv 2505.09388) or of all heads of a row together (OLMoE,
/// arXiv 2409.02060). T = float or BFloat16; statistics, gains and their gradients are float.
///
/// As in norm.h, a pass has two stages where a row's heads are spread over ranks: `qk_sum_squares`
/// or `qk_norm_backward_sums`, added over ranks, then the apply form.
namespace fourfold::kernels {

/// The part of each row that is normed: `groups` of `width` adjacent columns, one after the other,
/// each with a mean square of its own and all with the same gain[width].
struct QkColumns {
  std::int64_t rows = 0, groups = 0, width = 0;
  std::int64_t fused_stride = 0;  ///< Between rows of the fused buffer, in elements.
  std::int64_t dense_stride = 0;  ///< Between rows of the copy before the norm.
};

/// sum_squares[rows, groups] = Σ x² of the copy.
template <class T>
void qk_sum_squares(const T* x, const QkColumns& columns, float* sum_squares);

/// fused = x·rstd·gain, from the copy and rstd[rows, groups].
template <class T>
void qk_norm_apply(const T* x, const QkColumns& columns, const float* rstd, const float* gain,
                   T* fused);

/// Both stages on one rank; keeps rstd.
template <class T>
void qk_norm_forward(const T* x, const QkColumns& columns, const float* gain, float eps, T* fused,
                     float* rstd);

/// sums[rows, groups] = Σ dy·gain·x̂ with x̂ = x·rstd; dy is fused.
template <class T>
void qk_norm_backward_sums(const T* fused_dy, const T* x, const QkColumns& columns,
                           const float* rstd, const float* gain, float* sums);

/// The gradient of x in place of that of the output: rstd·(dy·gain − x̂·sum / global_width), with
/// sums over all `global_width` columns. dgain[width] += Σ dy·x̂.
template <class T>
void qk_norm_backward_apply(T* fused, const T* x, const QkColumns& columns, const float* rstd,
                            const float* gain, const float* sums, std::int64_t global_width,
                            float* dgain);

/// Both stages on one rank.
template <class T>
void qk_norm_backward(T* fused, const T* x, const QkColumns& columns, const float* rstd,
                      const float* gain, float* dgain);

}  // namespace fourfold::kernels
