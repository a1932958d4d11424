#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "policy/model_layers.h"
#include "policy/recompute.h"

namespace fourfold {

/// Gradients of matrices that are on their way over z at a time: each is a whole block in f32.
inline constexpr std::size_t kScattersInFlight = 4;
/// Sums of gradients over data that are on their way at a time, of a unit one, with experts two:
/// bounds the memory of what is packed or rounded.
inline constexpr std::size_t kSumsInFlight = 4;
/// Parameters of fewer stored elements travel over data packed into one operation of their unit.
inline constexpr std::int64_t kPackedBelow = 1 << 15;

/// In which order one micro-batch uses the matrices that are stored over z, each by the name of its
/// first parameter: what is gathered next is known long before it is needed.
struct OverlapPlan {
  std::vector<std::string> forward;  ///< Of an evaluation.
  std::vector<std::string> step;     ///< Of forward and backward.
};

/// `kept`: of each block, what backward need not compute again; empty: all.
OverlapPlan overlap_plan(const ModelLayers& layers, const std::vector<KeptActivations>& kept);

}  // namespace fourfold
