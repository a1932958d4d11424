#include "optim/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "base/exact_sum.h"
#include "device/tensors.h"
#include "kernels/exact_sum.h"

namespace fourfold {

GradientNorm global_gradient_norm(std::span<const OptimizerTensor> tensors, Communicator& world) {
  ExactSum sum;
  auto first_bad = static_cast<std::int64_t>(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].counted) continue;
    const std::int64_t before = sum.non_finite();
    kernels::add_squares(elements<float>(tensors[i].gradient), tensors[i].gradient.numel(), sum);
    if (sum.non_finite() > before) first_bad = std::min(first_bad, static_cast<std::int64_t>(i));
  }
  sum.normalise();
  world.all_reduce({sum.words().data(), ExactSum::kWords, DType::kI64}, ReduceOp::kSum).wait_host();
  GradientNorm norm;
  norm.norm = std::sqrt(sum.value());
  norm.non_finite = sum.non_finite();
  if (norm.non_finite > 0) {
    world.all_reduce({&first_bad, 1, DType::kI64}, ReduceOp::kMin).wait_host();
    norm.first_bad = tensors[static_cast<std::size_t>(first_bad)].name;
  }
  return norm;
}

double clip_factor(double norm, double limit) {
  return limit > 0 && norm > limit ? limit / norm : 1;
}

}  // namespace fourfold
