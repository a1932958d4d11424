#include "optim/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "device/tensors.h"
#include "kernels/exact_sum.h"

namespace fourfold {

void GradientNormSum::add(const OptimizerTensor& tensor, std::int64_t index) {
  if (!tensor.counted) return;
  const std::int64_t before = sum_.non_finite();
  kernels::add_squares(elements<float>(tensor.gradient), tensor.gradient.numel(), sum_);
  if (sum_.non_finite() > before) first_bad_ = std::min(first_bad_, index);
}

GradientNorm GradientNormSum::combine(std::span<const std::string> names, Communicator& world) {
  sum_.normalise();
  world.all_reduce({sum_.words().data(), ExactSum::kWords, DType::kI64}, ReduceOp::kSum)
      .wait_host();
  GradientNorm norm;
  norm.norm = std::sqrt(sum_.value());
  norm.non_finite = sum_.non_finite();
  if (norm.non_finite > 0) {
    world.all_reduce({&first_bad_, 1, DType::kI64}, ReduceOp::kMin).wait_host();
    norm.first_bad = names[static_cast<std::size_t>(first_bad_)];
  }
  return norm;
}

double clip_factor(double norm, double limit) {
  return limit > 0 && norm > limit ? limit / norm : 1;
}

}  // namespace fourfold
