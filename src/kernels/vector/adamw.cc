#include "kernels/adamw.h"

#include "kernels/vector/tables.h"
#include "kernels/vector/vec.h"

namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

template <bool kCopy>
FF_INLINE void update(float* master, const float* grad, float* m, float* v, std::int64_t n,
                      const AdamWStep& step, BFloat16* copy) {
  const F scale = splat(step.grad_scale), decay = splat(1.0f - step.lr * step.weight_decay);
  const F keep1 = splat(1.0f - step.beta1), beta2 = splat(step.beta2),
          keep2 = splat(1.0f - step.beta2), eps = splat(step.eps);
  const F inverse_root = splat(1.0f / std::sqrt(step.bias_correction2));
  const F rate = splat(-step.lr / step.bias_correction1);
  for_lanes(n, [&](std::int64_t i, auto count) {
    const F g = load(grad + i, count) * scale;
    const F old_m = load(m + i, count);
    const F new_m = fma(g - old_m, keep1, old_m);
    const F new_v = fma(g * g, keep2, load(v + i, count) * beta2);
    const F denominator = fma(sqrt(new_v), inverse_root, eps);
    const F w = fma(new_m / denominator, rate, load(master + i, count) * decay);
    store(m + i, new_m, count);
    store(v + i, new_v, count);
    store(master + i, w, count);
    if constexpr (kCopy) store(copy + i, w, count);
  });
}

void adamw(float* master, const float* grad, float* m, float* v, std::int64_t n,
           const AdamWStep& step, BFloat16* copy) {
  if (copy != nullptr) {
    update<true>(master, grad, m, v, n, step, copy);
  } else {
    update<false>(master, grad, m, v, n, step, nullptr);
  }
}

}  // namespace

void fill(OptimizerTable& table) { table = {adamw}; }

}  // namespace fourfold::kernels::CPU_CAPABILITY
