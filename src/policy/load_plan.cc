#include "policy/load_plan.h"

#include <algorithm>

#include "policy/held_region.h"

namespace fourfold {

std::vector<int> plan_load(std::span<const LoadItem> wanted, const Grid& writer, bool zero) {
  std::vector<int> ranks;
  for (int rank = 0; rank < writer.size(); ++rank) {
    const Coords at = writer.coords(WorldRank(rank));
    const bool holds = std::any_of(wanted.begin(), wanted.end(), [&](const LoadItem& item) {
      if (!item.layout->fits(writer)) return true;
      const Region held = held_region(*item.layout, writer, at, zero).region;
      return !intersect(held, item.region).empty();
    });
    if (holds) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace fourfold
