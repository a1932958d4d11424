#include "policy/held_region.h"

namespace fourfold {

HeldRegion held_region(const TensorLayout& layout, const Grid& grid, Coords at, bool zero) {
  const int copies = zero ? 1 : grid.shape().data;
  HeldRegion held;
  held.region = layout.updated(grid, at, zero);
  held.replicas = layout.replicas(grid) * copies;
  held.replica = layout.replica(grid, at) * copies + (zero ? 0 : at.data);
  // Shared key/value heads have replicas of their own; the others are told apart by their axes.
  const bool shared = layout.dims[0].parts != 0;
  held.replica_set = shared ? -1 : layout.split_axes().bits() + (zero ? 16 : 0);
  return held;
}

}  // namespace fourfold
