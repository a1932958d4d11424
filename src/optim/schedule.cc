#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace fourfold {
namespace {

/// How far `step` is from `begin` to `end`, in [0, 1].
double progress(std::int64_t step, std::int64_t begin, std::int64_t end) {
  if (step >= end) return 1;
  return std::max(0.0, static_cast<double>(step - begin) / static_cast<double>(end - begin));
}

}  // namespace

double learning_rate(const Schedule& s, std::int64_t step) {
  if (step < s.warmup) {
    return s.peak * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  }
  const double span = s.peak - s.minimum;
  switch (s.kind) {
    case Schedule::Kind::kConstant:
      return s.peak;
    case Schedule::Kind::kLinear:
      return s.peak - span * progress(step, s.warmup, s.steps);
    case Schedule::Kind::kCosine:
      return s.minimum +
             span * 0.5 * (1 + std::cos(std::numbers::pi * progress(step, s.warmup, s.steps)));
    case Schedule::Kind::kWsd:
      return s.peak - span * progress(step, std::max(s.warmup, s.steps - s.decay), s.steps);
    case Schedule::Kind::kInverseSqrt: {
      const auto origin = static_cast<double>(std::max<std::int64_t>(s.warmup, 1));
      return std::max(s.minimum, s.peak * std::sqrt(origin / static_cast<double>(step + 1)));
    }
  }
  return s.peak;
}

}  // namespace fourfold
