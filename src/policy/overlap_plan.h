#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "policy/model_layers.h"
#include "policy/recompute.h"

namespace fourfold {

/// Gradients of matrices that are on their way over z at a time: each is a whole block in f32.
inline constexpr std::size_t kScattersInFlight = 4;

/// In which order one micro-batch uses the matrices that are stored over z, each by the name of its
/// first parameter: what is gathered next is known long before it is needed.
struct OverlapPlan {
  std::vector<std::string> forward;  ///< Of an evaluation.
  std::vector<std::string> step;     ///< Of forward and backward.
};

/// `kept`: of each block, what backward need not compute again; empty: all.
OverlapPlan overlap_plan(const ModelLayers& layers, const std::vector<KeptActivations>& kept);

}  // namespace fourfold
