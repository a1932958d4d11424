#include "layout/expert_map.h"

#include "base/check.h"
#include "layout/region.h"

namespace fourfold {

ExpertMap::ExpertMap(int experts, int ranks, ExpertPlacement placement)
    : rank_of_(static_cast<std::size_t>(experts)),
      slot_of_(rank_of_.size()),
      of_rank_(static_cast<std::size_t>(ranks)) {
  FF_CHECK(ranks >= 1 && experts >= ranks, "{} experts over {} ranks", experts, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<int>& mine = of_rank_[static_cast<std::size_t>(rank)];
    if (placement == ExpertPlacement::kContiguous) {
      const Range run = split_range(experts, ranks, rank);
      for (auto e = run.begin; e < run.end; ++e) mine.push_back(static_cast<int>(e));
    } else {
      for (int e = rank; e < experts; e += ranks) mine.push_back(e);
    }
    for (std::size_t slot = 0; slot < mine.size(); ++slot) {
      rank_of_[static_cast<std::size_t>(mine[slot])] = rank;
      slot_of_[static_cast<std::size_t>(mine[slot])] = static_cast<int>(slot);
    }
  }
}

}  // namespace fourfold
