#include "policy/load_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "policy/held_region.h"

namespace fourfold {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

const TensorLayout kLinear{{13, 9}, {{{Axis::kX}, 0}, {{Axis::kY}, 0}}};

/// Of all ranks of the writer's grid.
std::vector<int> plan(std::span<const LoadItem> wanted, const Grid& writer, bool zero) {
  std::vector<int> ranks(static_cast<std::size_t>(writer.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return plan_load(wanted, writer, zero, ranks);
}

TEST(LoadPlan, TheSameGridNeedsTheHoldersOfTheSameRegionOnly) {
  const Grid grid(GridShape(2, 2, 2, 2));
  for (int rank = 0; rank < grid.size(); ++rank) {
    const HeldRegion held = held_region(kLinear, grid, grid.coords(WorldRank(rank)), /*zero=*/true);
    const LoadItem wanted{&kLinear, held.region};
    EXPECT_THAT(plan({&wanted, 1}, grid, /*zero=*/true), ElementsAre(rank));
    // Without ZeRO both data ranks hold it, and either may have written it.
    const LoadItem whole{&kLinear,
                         held_region(kLinear, grid, grid.coords(WorldRank(rank)), false).region};
    EXPECT_THAT(plan({&whole, 1}, grid, /*zero=*/false), SizeIs(2));
  }
}

TEST(LoadPlan, EveryElementWantedIsHeldBySomebodyGiven) {
  const Grid writer(GridShape(3, 2, 2, 1)), reader(GridShape(2, 1, 4, 1));
  for (int rank = 0; rank < reader.size(); ++rank) {
    const Region mine = held_region(kLinear, reader, reader.coords(WorldRank(rank)), true).region;
    const LoadItem wanted{&kLinear, mine};
    std::int64_t found = 0;
    for (const int from : plan({&wanted, 1}, writer, true)) {
      const Region held = held_region(kLinear, writer, writer.coords(WorldRank(from)), true).region;
      EXPECT_GT(intersect(held, mine).elements(), 0);
      found += intersect(held, mine).elements();
    }
    EXPECT_EQ(found, mine.elements());
  }
}

TEST(LoadPlan, ALayoutThatIsNoneOfTheWritersGridNeedsEverybody) {
  // Two parts among the reader's four ranks over x; the writer has one, or three.
  const TensorLayout shared{{8, 9}, {{{Axis::kX}, 2}, {{}, 0}}};
  const LoadItem wanted{&shared, Region{{{0, 1}, {0, 9}}}};
  EXPECT_THAT(plan({&wanted, 1}, Grid(GridShape(1, 1, 2, 1)), true), SizeIs(2));
  EXPECT_THAT(plan({&wanted, 1}, Grid(GridShape(3, 1, 1, 1)), true), SizeIs(3));
  EXPECT_THAT(plan({&wanted, 1}, Grid(GridShape(4, 1, 1, 1)), true), ElementsAre(0, 1));
}

TEST(LoadPlan, RanksThatWroteNothingAreNotAsked) {
  const LoadItem whole{&kLinear, Region::whole(kLinear.shape)};
  const int wrote[] = {1, 3};
  EXPECT_THAT(plan_load({&whole, 1}, Grid(GridShape(2, 2, 1, 1)), true, wrote), ElementsAre(1, 3));
}

TEST(LoadPlan, NothingWantedNeedsNobody) {
  const LoadItem empty{&kLinear, Region{{{4, 4}, {0, 9}}}};
  EXPECT_THAT(plan({&empty, 1}, Grid(GridShape(2, 2, 1, 1)), false), IsEmpty());
  EXPECT_THAT(plan({}, Grid(GridShape(2, 2, 1, 1)), false), IsEmpty());
}

}  // namespace
}  // namespace fourfold
