#pragma once

#include "parallel/parameter.h"

namespace fourfold {

/// Matrices that one product uses: gathered over z for each use, their gradients scattered over z
/// after each (AxoNN's depth tensor parallelism: storage, not computation, is cut over z).
class WeightBlock : public ParameterGroup {
 public:
  using ParameterGroup::ParameterGroup;

  /// The block, [rows(), cols()] in the compute type. With Gz = 1 a view of the stored weights: it
  /// must not be written to.
  at::Tensor gather(Lane lane = Lane::kCaller) const;

  /// Where the gradient of the block is to be written by the product that makes it: [rows(),
  /// cols()] f32 and whether the product must add to what is there (Gz = 1: the stored gradient
  /// itself).
  struct GradientTarget {
    at::Tensor tensor;
    bool accumulate = false;
  };
  GradientTarget gradient_target();
  /// Takes the written gradient: sums it over z into the stored gradient.
  void add_gradient(const GradientTarget& target, Lane lane = Lane::kCaller);
};

}  // namespace fourfold
