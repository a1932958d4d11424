#include "optim/adamw.h"

#include "device/tensors.h"
#include "kernels/adamw.h"

namespace fourfold {

void adamw_update(const AdamWOptions& options, std::span<const OptimizerTensor> tensors,
                  std::int64_t update, double lr, double gradient_scale) {
  kernels::AdamWStep step;
  step.lr = static_cast<float>(lr);
  step.beta1 = static_cast<float>(options.beta1);
  step.beta2 = static_cast<float>(options.beta2);
  step.eps = static_cast<float>(options.eps);
  step.grad_scale = static_cast<float>(gradient_scale);
  kernels::set_bias_corrections(step, update);
  for (const OptimizerTensor& t : tensors) {
    step.weight_decay = t.decay ? static_cast<float>(options.weight_decay) : 0;
    kernels::adamw(elements<float>(t.master), elements<float>(t.gradient),
                   elements<float>(t.exp_avg), elements<float>(t.exp_avg_sq), t.master.numel(),
                   step, t.weight.defined() ? elements<BFloat16>(t.weight) : nullptr);
  }
}

}  // namespace fourfold
