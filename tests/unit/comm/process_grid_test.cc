#include "comm/process_grid.h"

#include <gtest/gtest.h>

#include "comm/thread_world.h"

namespace fourfold {
namespace {

/// The world ranks of a group, found by communicating.
std::vector<std::int64_t> members(Communicator& group, const Communicator& world) {
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(group.size()), 1);
  const std::int64_t mine = world.rank();
  std::vector<std::int64_t> all(counts.size());
  group.all_gather({&mine, 1, DType::kI64}, {all.data(), group.size(), DType::kI64}, counts)
      .wait_host();
  return all;
}

TEST(ProcessGrid, GroupsAreTheGrids) {
  run_thread_ranks(12, {}, [](Communicator& world) {
    ProcessGrid grid(Grid(GridShape(3, 2, 1, 2), "dxyz"), world);
    EXPECT_EQ(grid.coords(), grid.grid().coords(WorldRank(world.rank())));
    // Sets with equal groups (z has one rank), asked for in another order by each rank.
    std::vector<AxisSet> sets{{Axis::kX},           {Axis::kX, Axis::kZ}, {Axis::kY}, {Axis::kData},
                              {Axis::kX, Axis::kY}, kWorldAxes,           {},         {Axis::kZ}};
    for (std::size_t i = 0; i < sets.size(); ++i) {
      grid.group(sets[(i + static_cast<std::size_t>(world.rank())) % sets.size()]);
    }
    for (const AxisSet axes : sets) {
      Communicator& group = grid.group(axes);
      EXPECT_EQ(&group, &grid.group(axes));
      EXPECT_EQ(group.name(), axes.name());
      EXPECT_EQ(group.rank(), grid.grid().group_rank(grid.coords(), axes));
      std::vector<std::int64_t> want;
      for (const WorldRank r : grid.grid().group(grid.coords(), axes)) want.push_back(r.value);
      EXPECT_EQ(members(group, world), want) << axes.name();
    }
  });
}

TEST(ProcessGrid, SharersHoldTheSamePart) {
  run_thread_ranks(8, {}, [](Communicator& world) {
    ProcessGrid grid(Grid(GridShape(4, 2, 1, 1)), world);
    const std::int64_t me = world.rank(), y = me % 2, x = me / 2;
    EXPECT_EQ(members(grid.sharers_of_x(2), world),
              (std::vector<std::int64_t>{y + x / 2 * 4, y + x / 2 * 4 + 2}));
    EXPECT_EQ(grid.sharers_of_x(1).size(), 4);
    EXPECT_EQ(grid.sharers_of_x(4).size(), 1);
    EXPECT_EQ(grid.sharers_of_x(8).size(), 1);
  });
}

TEST(ProcessGrid, RunsOnOneRank) {
  const auto solo = make_solo();
  ProcessGrid grid(Grid(GridShape(1, 1, 1, 1)), *solo);
  EXPECT_EQ(grid.group({Axis::kX}).size(), 1);
  EXPECT_EQ(members(grid.group(kWorldAxes), *solo), std::vector<std::int64_t>{0});
}

}  // namespace
}  // namespace fourfold
