#pragma once

#include <cstdint>

namespace fourfold {

/// A learning rate as a function of the step alone, so that resuming needs no state.
struct Schedule {
  enum class Kind { kConstant, kLinear, kCosine, kWsd, kInverseSqrt };
  Kind kind = Kind::kConstant;
  double peak = 0;
  double minimum = 0;       ///< Reached at `steps` (linear, cosine, WSD); inverse sqrt's floor.
  std::int64_t warmup = 0;  ///< Steps of linear rise from peak / warmup.
  std::int64_t steps = 0;   ///< Of the whole run.
  std::int64_t decay = 0;   ///< WSD: steps of the linear decay at the end.
};

/// The rate of the update that makes step `step` into `step` + 1 (so step 0 is the first).
/// WSD (warm-up, stable, decay): Hu et al., "MiniCPM", arXiv 2404.06395. Inverse square root:
/// Vaswani et al., "Attention Is All You Need", 5.3, scaled to the peak at the end of warm-up.
double learning_rate(const Schedule& schedule, std::int64_t step);

}  // namespace fourfold
