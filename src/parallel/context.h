#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "comm/process_grid.h"
#include "parallel/products.h"

namespace fourfold {

class OverlapScheduler;

/// What every layer of one rank is built with. Outlives the layers.
struct ParallelContext {
  ProcessGrid& grid;
  DType compute = DType::kF32;  ///< Type of activations and of weights in products.
  bool zero = true;             ///< ZeRO-1: masters and moments are cut over data.
  std::uint64_t seed = 0;
  bool trains = true;  ///< False: forward passes only, no gradients and moments are allocated.
  /// Null: nothing is overlapped, and matrices may be used in any order.
  OverlapScheduler* overlap = nullptr;
  /// Type in which gradients of matrices travel over z, and large ones over data: rounded before
  /// each sum, which adds in f32, and after it.
  DType gradients = DType::kF32;
  F32Products products = F32Products::kF32;  ///< Of matrices; routers multiply in f32.

  const Grid& shape() const { return grid.grid(); }
  Coords coords() const { return grid.coords(); }
  int size(Axis axis) const { return grid.grid().shape()[axis]; }
  /// Computation that takes a while, for the timeline; `of` outlives the span.
  TimedSpan timed(std::string_view what, std::string_view of = {}) const {
    return {grid.world().timeline(), TimelineSpan::Kind::kCompute, what, of};
  }
};

}  // namespace fourfold
