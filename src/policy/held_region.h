#pragma once

#include "layout/tensor_layout.h"

namespace fourfold {

/// What one rank contributes of a parameter to a checkpoint: the region that its optimizer updates,
/// which of the ranks that hold it this one is, and who they are (SaveItem).
struct HeldRegion {
  Region region;
  int replica = 0;
  int replicas = 1;
  int replica_set = -1;
};

HeldRegion held_region(const TensorLayout& layout, const Grid& grid, Coords at, bool zero);
/// Of a tensor that every rank has whole: what routers keep between steps.
HeldRegion held_by_all(const std::vector<std::int64_t>& shape, int rank, int ranks);

}  // namespace fourfold
