#pragma once

#include <cstdint>

#include "base/bfloat16.h"

/// Cross-entropy over a shard [vocab_begin, vocab_begin + cols) of the vocabulary, in stages with a
/// reduction over ranks after each: row_max (maximum), then sum_exp_and_target (sums), then
/// softmax_gradient. The loss of a row is log(sum_exp) + max - target_logit. Logits are a dense
/// [rows, cols] chunk of T = float or BFloat16; arithmetic and statistics are float. A row whose
/// target is `kIgnoredTarget` (any negative number) has target logit 0 and should get row_scale 0.
namespace fourfold::kernels {

inline constexpr std::int64_t kIgnoredTarget = -1;

/// out[row] = max of the row, NaNs aside (they show in sum_exp); -infinity when cols is 0.
template <class T>
void row_max(const T* logits, std::int64_t rows, std::int64_t cols, float* out);

/// sum_exp[row] = Σ exp(logit - max[row]); target_logit[row] = the logit of targets[row] where this
/// shard holds it, else 0.
template <class T>
void sum_exp_and_target(const T* logits, const float* max, const std::int64_t* targets,
                        std::int64_t vocab_begin, std::int64_t rows, std::int64_t cols,
                        float* sum_exp, float* target_logit);

/// logits := (exp(logit - max) / sum_exp - [column is the target])·row_scale[row], in place, with
/// max and sum_exp of the whole vocabulary.
template <class T>
void softmax_gradient(T* logits, const float* max, const float* sum_exp,
                      const std::int64_t* targets, std::int64_t vocab_begin, const float* row_scale,
                      std::int64_t rows, std::int64_t cols);

}  // namespace fourfold::kernels
