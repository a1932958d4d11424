#include "layout/expert_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace fourfold {
namespace {

using testing::ElementsAre;

TEST(ExpertMap, ContiguousGivesTheFirstRanksOneMore) {
  const ExpertMap map(8, 3, ExpertPlacement::kContiguous);
  EXPECT_EQ(map.experts(), 8);
  EXPECT_EQ(map.ranks(), 3);
  EXPECT_THAT(map.of_rank(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(map.of_rank(1), ElementsAre(3, 4, 5));
  EXPECT_THAT(map.of_rank(2), ElementsAre(6, 7));
}

TEST(ExpertMap, InterleavedDealsExpertsInTurn) {
  const ExpertMap map(8, 3, ExpertPlacement::kInterleaved);
  EXPECT_THAT(map.of_rank(0), ElementsAre(0, 3, 6));
  EXPECT_THAT(map.of_rank(1), ElementsAre(1, 4, 7));
  EXPECT_THAT(map.of_rank(2), ElementsAre(2, 5));
}

TEST(ExpertMap, RanksAndSlotsPointBackAtTheLists) {
  for (const auto placement : {ExpertPlacement::kContiguous, ExpertPlacement::kInterleaved}) {
    for (int experts = 1; experts < 10; ++experts) {
      for (int ranks = 1; ranks <= experts; ++ranks) {
        const ExpertMap map(experts, ranks, placement);
        int held = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const std::vector<int>& mine = map.of_rank(rank);
          EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
          // None has two more than another.
          EXPECT_GE(static_cast<int>(mine.size()), experts / ranks);
          EXPECT_LE(static_cast<int>(mine.size()), (experts + ranks - 1) / ranks);
          for (std::size_t slot = 0; slot < mine.size(); ++slot, ++held) {
            EXPECT_EQ(map.rank_of(mine[slot]), rank);
            EXPECT_EQ(map.slot_of(mine[slot]), static_cast<int>(slot));
          }
        }
        EXPECT_EQ(held, experts);
      }
    }
  }
}

}  // namespace
}  // namespace fourfold
