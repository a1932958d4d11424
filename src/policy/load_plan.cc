#include "policy/load_plan.h"

#include <algorithm>

#include "policy/held_region.h"

namespace fourfold {

std::vector<int> plan_load(std::span<const LoadItem> wanted, const Grid& writer, bool zero,
                           std::span<const int> ranks) {
  std::vector<int> holders;
  for (const int rank : ranks) {
    const Coords at = writer.coords(WorldRank(rank));
    const bool holds = std::any_of(wanted.begin(), wanted.end(), [&](const LoadItem& item) {
      if (!item.layout->fits(writer)) return true;
      const Region held = held_region(*item.layout, writer, at, zero).region;
      return !intersect(held, item.region).empty();
    });
    if (holds) holders.push_back(rank);
  }
  return holders;
}

}  // namespace fourfold
