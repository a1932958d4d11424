#pragma once

#include <string>

#include "layout/tensor_layout.h"

namespace fourfold {

/// How a parameter starts: every element is a function of the run's seed, the parameter's name and
/// the element's global index, so that all grids start with the same bits.
struct Init {
  enum class Kind { kNormal, kOnes, kZeros };
  Kind kind = Kind::kNormal;
  float std = 0;
};

/// What a parameter is for; weight decay is decided by it (never for vectors), and with `expert`
/// how checkpoints keep it.
enum class ParameterRole { kLinear, kEmbedding, kVector, kRouter };

/// One named tensor of the model, as the world outside sees it.
struct ParameterSpec {
  std::string name;  ///< Global, as Hugging Face names it.
  TensorLayout layout;
  Init init;
  ParameterRole role = ParameterRole::kLinear;
  int expert = -1;  ///< Which of its layer's experts it belongs to; -1: none.
  /// Its gradient on each x is that of the rank's rows alone: the sum over x is still to come.
  bool rows_over_x = false;
};

}  // namespace fourfold
