#pragma once

#include <cstdint>

#include "base/bfloat16.h"

namespace fourfold::kernels {

/// The numbers of one AdamW step (Loshchilov, Hutter 2019), in torch.optim.AdamW's formula:
///   g = grad·grad_scale;  w -= lr·weight_decay·w;  m += (g - m)·(1 - beta1);
///   v = beta2·v + (1 - beta2)·g²;
///   w -= lr / bias_correction1 · m / (sqrt(v) / sqrt(bias_correction2) + eps).
struct AdamWStep {
  float lr = 0, beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
  float bias_correction1 = 1, bias_correction2 = 1;  ///< 1 - betaᵗ of step t = 1, 2, ...
  float grad_scale = 1;                              ///< Of clipping and loss scaling.
};

/// Sets the bias corrections of step t (from 1), computed in double.
void set_bias_corrections(AdamWStep& step, std::int64_t t);

/// One pass over n elements: updates master weights and moments in place and, unless `copy` is
/// null, writes the weights rounded to bf16 for the next forward.
void adamw(float* master, const float* grad, float* m, float* v, std::int64_t n,
           const AdamWStep& step, BFloat16* copy);

}  // namespace fourfold::kernels
