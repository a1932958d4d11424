#include "policy/held_region.h"

#include "layout/expert_grid.h"

namespace fourfold {

HeldRegion held_region(const TensorLayout& layout, const Grid& grid, Coords at, bool zero) {
  const ExpertGrid experts(grid.shape(), layout.expert_ranks);
  const int copies = zero ? 1 : experts.replicas();
  HeldRegion held;
  held.region = layout.updated(grid, at, zero);
  held.replicas = layout.replicas(grid) * copies;
  held.replica = layout.replica(grid, at) * copies + (zero ? 0 : experts.place(at).replica);
  // Shared key/value heads have replicas of their own; the others are told apart by their axes.
  const bool shared = layout.dims[0].parts != 0;
  constexpr int kZero = 16, kExpert = 32;  // Beyond the bits of the axes.
  held.replica_set = shared ? -1
                            : layout.split_axes().bits() + (zero ? kZero : 0) +
                                  (layout.expert_ranks > 1 ? kExpert : 0);
  return held;
}

HeldRegion held_by_all(const std::vector<std::int64_t>& shape, int rank, int ranks) {
  return {Region::whole(shape), rank, ranks, -1};
}

}  // namespace fourfold
