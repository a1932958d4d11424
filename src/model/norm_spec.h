#pragma once

#include <string>
#include <utility>

#include "parallel/norm.h"
#include "spec/model_spec.h"

namespace fourfold {

/// The norm that a model of this spec uses everywhere.
inline NormSpec norm_spec(const ModelSpec& spec, std::string name) {
  const bool centred = spec.norm == Norm::kLayerNorm;
  return {std::move(name), spec.hidden, centred, centred && spec.bias,
          static_cast<float>(spec.norm_eps)};
}

}  // namespace fourfold
