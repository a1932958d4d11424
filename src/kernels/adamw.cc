#include "kernels/adamw.h"

#include <cmath>

#include "base/check.h"
#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {

void set_bias_corrections(AdamWStep& step, std::int64_t t) {
  FF_CHECK(t >= 1, "step {}", t);
  const auto power = static_cast<double>(t);
  step.bias_correction1 = static_cast<float>(1.0 - std::pow(double{step.beta1}, power));
  step.bias_correction2 = static_cast<float>(1.0 - std::pow(double{step.beta2}, power));
}

void adamw(float* master, const float* grad, float* m, float* v, std::int64_t n,
           const AdamWStep& step, BFloat16* copy) {
  parallel_elements(n, [&](std::int64_t b, std::int64_t e) {
    tables().optimizer.adamw(master + b, grad + b, m + b, v + b, e - b, step,
                             copy != nullptr ? copy + b : nullptr);
  });
}

}  // namespace fourfold::kernels
