#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/grid.h"
#include "layout/region.h"

namespace fourfold {

/// How one dim of a tensor is cut: over the ranks of `axes`, into `parts` parts. Where parts is
/// smaller than the number of ranks (key/value heads fewer than Gx), neighbouring ranks share one.
struct DimSplit {
  AxisSet axes;
  int parts = 0;  ///< 0: one part for each rank of the axes.
};

/// Where each element of a parameter lives on the grid. Two cuts, one after the other:
/// the local block, which a rank computes with, is cut over x and y dim by dim; its storage is dim
/// 0 of that block, cut over z and then, with ZeRO-1, over data (an expert's: over the storing and
/// the replicating ranks of ExpertGrid). So every shard is one box.
struct TensorLayout {
  std::vector<std::int64_t> shape;  ///< Global.
  std::vector<DimSplit> dims;       ///< One per dim.
  /// An expert's tensors are with one of several expert ranks; the others have nothing of them.
  int expert_ranks = 1, expert_rank = 0;

  /// The block that the rank at `at` computes with (whole over z and data).
  Region block(const Grid& grid, Coords at) const;
  /// What the rank stores between steps: the block's dim 0, cut over z.
  Region stored(const Grid& grid, Coords at) const;
  /// What the rank's optimizer updates: stored(), cut over data as well when `zero` is true.
  Region updated(const Grid& grid, Coords at, bool zero) const;

  /// Whether ranks of the grid can share the parts evenly; everything else here asks for it.
  bool fits(const Grid& grid) const;

  /// Axes over which this tensor's block is cut.
  AxisSet split_axes() const;
  /// Index of the rank among those with the same block and storage (over x and y), and their
  /// number. Replica 0 is the one that counts in norms.
  int replica(const Grid& grid, Coords at) const;
  int replicas(const Grid& grid) const;
  std::int64_t elements() const;
};

}  // namespace fourfold
