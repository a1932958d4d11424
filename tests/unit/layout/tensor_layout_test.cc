// Where the tensors of experts live; those of everything else are in
// tests/property/layout_property_test.cc.
#include "layout/tensor_layout.h"

#include <gtest/gtest.h>

#include "layout/expert_grid.h"

namespace fourfold {
namespace {

struct Case {
  GridShape shape;
  int ranks;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{{{2, 3, 4, 1}, 2}, {{1, 2, 4, 2}, 4}, {{3, 1, 2, 3}, 2},
                                        {{1, 1, 2, 4}, 4}, {{2, 1, 1, 6}, 3}, {{1, 2, 3, 4}, 6},
                                        {{2, 2, 2, 2}, 1}, {{1, 1, 6, 2}, 3}};
  return kCases;
}

TensorLayout up(int ranks, int rank) {
  return {{11, 7}, {{{Axis::kX}, 0}, {{Axis::kY}, 0}}, ranks, rank};
}
TensorLayout down(int ranks, int rank) {
  return {{7, 11}, {{{Axis::kY}, 0}, {{Axis::kX}, 0}}, ranks, rank};
}
TensorLayout bias(int ranks, int rank) { return {{11}, {{{Axis::kX}, 0}}, ranks, rank}; }

std::vector<TensorLayout> layouts(int ranks, int rank) {
  return {up(ranks, rank), down(ranks, rank), bias(ranks, rank)};
}

/// How often the ranks' regions hold each element of a tensor.
template <class RegionOf>
std::vector<int> times_held(const TensorLayout& layout, const Grid& grid, RegionOf region_of) {
  const Region whole = Region::whole(layout.shape);
  std::vector<int> times(static_cast<std::size_t>(layout.elements()));
  for (int r = 0; r < grid.size(); ++r) {
    const Region held = region_of(grid.coords(WorldRank(r)));
    EXPECT_EQ(intersect(held, whole).elements(), held.elements());
    const bool matrix = held.dims.size() == 2;
    const Range columns = matrix ? held.dims[1] : Range{0, 1};
    const std::int64_t width = matrix ? layout.shape[1] : 1;
    for (auto row = held.dims[0].begin; row < held.dims[0].end; ++row) {
      for (auto c = columns.begin; c < columns.end; ++c) {
        ++times[static_cast<std::size_t>(row * width + c)];
      }
    }
  }
  return times;
}

void expect_all(const std::vector<int>& times, int wanted) {
  for (const int n : times) EXPECT_EQ(n, wanted);
}

TEST(TensorLayoutOfExperts, EveryElementIsUpdatedOnceAndStoredOnceAReplica) {
  for (const auto& [shape, ranks] : cases()) {
    SCOPED_TRACE(shape.name() + " e" + std::to_string(ranks));
    const Grid grid(shape);
    const ExpertGrid experts(shape, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      for (const TensorLayout& layout : layouts(ranks, rank)) {
        // A bias is whole on each y.
        const int over_y = layout.replicas(grid);
        EXPECT_EQ(over_y, layout.shape.size() == 1 ? shape.y : 1);
        expect_all(
            times_held(layout, grid, [&](Coords at) { return layout.updated(grid, at, true); }),
            over_y);
        expect_all(times_held(layout, grid, [&](Coords at) { return layout.stored(grid, at); }),
                   over_y * experts.replicas());
        expect_all(
            times_held(layout, grid, [&](Coords at) { return layout.updated(grid, at, false); }),
            over_y * experts.replicas());
        expect_all(times_held(layout, grid, [&](Coords at) { return layout.block(grid, at); }),
                   over_y * experts.replicas() * experts.storers());
      }
    }
  }
}

TEST(TensorLayoutOfExperts, OtherExpertRanksHaveNothing) {
  for (const auto& [shape, ranks] : cases()) {
    SCOPED_TRACE(shape.name() + " e" + std::to_string(ranks));
    const Grid grid(shape);
    for (int rank = 0; rank < ranks; ++rank) {
      for (const TensorLayout& layout : layouts(ranks, rank)) {
        for (int r = 0; r < grid.size(); ++r) {
          const Coords at = grid.coords(WorldRank(r));
          const bool holds = ExpertGrid(shape, ranks).place(at).rank == rank;
          EXPECT_EQ(!layout.block(grid, at).empty(), holds);
          if (holds) continue;
          EXPECT_TRUE(layout.stored(grid, at).empty());
          EXPECT_TRUE(layout.updated(grid, at, true).empty());
          EXPECT_TRUE(layout.updated(grid, at, false).empty());
        }
      }
    }
  }
}

TEST(TensorLayoutOfExperts, FitsWhereTheExpertGridDoes) {
  EXPECT_TRUE(up(2, 0).fits(Grid(GridShape(1, 1, 4, 1))));
  EXPECT_TRUE(up(4, 3).fits(Grid(GridShape(1, 1, 2, 2))));
  EXPECT_FALSE(up(2, 0).fits(Grid(GridShape(2, 2, 1, 1))));
  EXPECT_FALSE(up(6, 0).fits(Grid(GridShape(1, 1, 4, 3))));
}

TEST(TensorLayoutOfExperts, ABlockIsCutOverStorersThenReplicas) {
  // Rows 0-5 of the block of x = 0; expert rank z mod 2 is 1 on z = 1 and 3.
  const Grid grid(GridShape(2, 1, 4, 2));
  const TensorLayout layout = up(2, 1);
  EXPECT_EQ(layout.block(grid, {0, 0, 3, 1}).name(), "[0:6,0:7]");
  EXPECT_EQ(layout.stored(grid, {0, 0, 1, 1}).name(), "[0:3,0:7]");
  EXPECT_EQ(layout.stored(grid, {0, 0, 3, 1}).name(), "[3:6,0:7]");
  EXPECT_EQ(layout.updated(grid, {0, 0, 3, 0}, true).name(), "[3:5,0:7]");
  EXPECT_EQ(layout.updated(grid, {0, 0, 3, 1}, true).name(), "[5:6,0:7]");
}

}  // namespace
}  // namespace fourfold
