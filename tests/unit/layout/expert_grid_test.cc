#include "layout/expert_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>

namespace fourfold {
namespace {

/// Grids with each number of expert ranks that fits.
void for_each_case(const std::function<void(const Grid&, const ExpertGrid&)>& check) {
  for (const int z : {1, 2, 3, 4, 6}) {
    for (const int data : {1, 2, 3, 4}) {
      const GridShape shape(2, 1, z, data);
      for (int ranks = 1; ranks <= z * data; ++ranks) {
        if (!ExpertGrid::fits(shape, ranks)) continue;
        SCOPED_TRACE(shape.name() + " e" + std::to_string(ranks));
        check(Grid(shape, "xydz"), ExpertGrid(shape, ranks));
      }
    }
  }
}

TEST(ExpertGrid, FitsWhereOneOfExpertRanksAndZDividesTheOther) {
  auto fits = [](int z, int data, int ranks) {
    return ExpertGrid::fits(GridShape(3, 2, z, data), ranks);
  };
  EXPECT_FALSE(fits(1, 1, 0));
  EXPECT_FALSE(fits(2, 2, -2));
  EXPECT_TRUE(fits(1, 1, 1));
  EXPECT_FALSE(fits(1, 1, 2));  // x and y are no place for expert ranks.
  EXPECT_TRUE(fits(4, 1, 2));
  EXPECT_TRUE(fits(1, 4, 2));
  EXPECT_TRUE(fits(2, 4, 8));
  EXPECT_FALSE(fits(4, 3, 6));  // Neither divides the other.
  EXPECT_FALSE(fits(2, 3, 4));  // A multiple of z, of which 6 ranks are none.
  EXPECT_FALSE(fits(2, 2, 8));
}

TEST(ExpertGrid, ExpertRanksInsideZ) {
  const ExpertGrid grid({2, 1, 6, 2}, 2);
  EXPECT_EQ(grid.ranks(), 2);
  EXPECT_EQ(grid.storers(), 3);
  EXPECT_EQ(grid.replicas(), 2);
  for (int z = 0; z < 6; ++z) {
    for (int data = 0; data < 2; ++data) {
      const ExpertGrid::Place place = grid.place({1, 0, z, data});
      EXPECT_EQ(place.rank, z % 2);
      EXPECT_EQ(place.storer, z / 2);
      EXPECT_EQ(place.replica, data);
    }
  }
}

TEST(ExpertGrid, ExpertRanksBeyondZ) {
  const ExpertGrid grid({1, 2, 2, 6}, 4);
  EXPECT_EQ(grid.storers(), 1);
  EXPECT_EQ(grid.replicas(), 3);
  for (int z = 0; z < 2; ++z) {
    for (int data = 0; data < 6; ++data) {
      const ExpertGrid::Place place = grid.place({0, 1, z, data});
      EXPECT_EQ(place.rank, (z + 2 * data) % 4);
      EXPECT_EQ(place.storer, 0);
      EXPECT_EQ(place.replica, data / 2);
    }
  }
}

TEST(ExpertGrid, AsManyExpertRanksAsZ) {
  const ExpertGrid grid({1, 1, 3, 2}, 3);
  EXPECT_EQ(grid.storers(), 1);
  EXPECT_EQ(grid.replicas(), 2);
  EXPECT_EQ(grid.place({0, 0, 2, 1}).rank, 2);
  EXPECT_EQ(grid.place({0, 0, 2, 1}).replica, 1);
}

TEST(ExpertGrid, OneExpertRankIsStoredOverZAndReplicatedOverData) {
  for_each_case([](const Grid& grid, const ExpertGrid& experts) {
    if (experts.ranks() != 1) return;
    for (int r = 0; r < grid.size(); ++r) {
      const Coords at = grid.coords(WorldRank(r));
      EXPECT_EQ(experts.place(at).storer, at.z);
      EXPECT_EQ(experts.place(at).replica, at.data);
      auto ranks = [&](const std::vector<Coords>& members) {
        std::vector<WorldRank> all;
        for (const Coords& c : members) all.push_back(grid.rank(c));
        return all;
      };
      EXPECT_EQ(ranks(experts.storer_peers(at)), grid.group(at, {Axis::kZ}));
      EXPECT_EQ(ranks(experts.replica_peers(at)), grid.group(at, {Axis::kData}));
      EXPECT_EQ(experts.rank_peers(at), std::vector<Coords>{at});
    }
  });
}

TEST(ExpertGrid, EveryPlaceIsOneRanks) {
  for_each_case([](const Grid& grid, const ExpertGrid& experts) {
    std::set<std::tuple<int, int, int, int, int>> taken;
    for (int r = 0; r < grid.size(); ++r) {
      const Coords at = grid.coords(WorldRank(r));
      const auto [rank, storer, replica] = experts.place(at);
      EXPECT_TRUE(rank >= 0 && rank < experts.ranks());
      EXPECT_TRUE(storer >= 0 && storer < experts.storers());
      EXPECT_TRUE(replica >= 0 && replica < experts.replicas());
      EXPECT_TRUE(taken.emplace(at.x, at.y, rank, storer, replica).second);
    }
  });
}

/// Members of a group of any kind name the same ranks in the same order, and stand where their
/// number says; they share x and y and the other two numbers.
void check_group(const Grid& grid, const ExpertGrid& experts, Coords at,
                 std::vector<Coords> (ExpertGrid::*peers)(Coords) const,
                 int ExpertGrid::Place::* number, int size) {
  const std::vector<Coords> members = (experts.*peers)(at);
  ASSERT_EQ(static_cast<int>(members.size()), size);
  for (std::size_t i = 0; i < members.size(); ++i) {
    ExpertGrid::Place place = experts.place(members[i]), here = experts.place(at);
    EXPECT_EQ(place.*number, static_cast<int>(i));
    place.*number = here.*number = 0;
    EXPECT_EQ(std::tie(place.rank, place.storer, place.replica),
              std::tie(here.rank, here.storer, here.replica));
    EXPECT_TRUE(members[i].x == at.x && members[i].y == at.y);
    EXPECT_TRUE(members[i].z < grid.shape().z && members[i].data < grid.shape().data);
    EXPECT_EQ((experts.*peers)(members[i]), members);
  }
  EXPECT_EQ(std::count(members.begin(), members.end(), at), 1);
}

TEST(ExpertGrid, PeersPartitionTheRanks) {
  for_each_case([](const Grid& grid, const ExpertGrid& experts) {
    for (int r = 0; r < grid.size(); ++r) {
      const Coords at = grid.coords(WorldRank(r));
      using Place = ExpertGrid::Place;
      check_group(grid, experts, at, &ExpertGrid::rank_peers, &Place::rank, experts.ranks());
      check_group(grid, experts, at, &ExpertGrid::storer_peers, &Place::storer, experts.storers());
      check_group(grid, experts, at, &ExpertGrid::replica_peers, &Place::replica,
                  experts.replicas());
    }
  });
}

TEST(ExpertGrid, ExchangesInsideZWhereZIsEnough) {
  const ExpertGrid inside({1, 1, 4, 2}, 2);
  EXPECT_EQ(inside.rank_peers({0, 0, 3, 1}), (std::vector<Coords>{{0, 0, 2, 1}, {0, 0, 3, 1}}));
  EXPECT_EQ(inside.storer_peers({0, 0, 3, 1}), (std::vector<Coords>{{0, 0, 1, 1}, {0, 0, 3, 1}}));
  const ExpertGrid beyond({1, 1, 2, 4}, 4);
  EXPECT_EQ(beyond.rank_peers({0, 0, 1, 2}),
            (std::vector<Coords>{{0, 0, 0, 2}, {0, 0, 1, 2}, {0, 0, 0, 3}, {0, 0, 1, 3}}));
  EXPECT_EQ(beyond.replica_peers({0, 0, 1, 2}), (std::vector<Coords>{{0, 0, 1, 0}, {0, 0, 1, 2}}));
}

}  // namespace
}  // namespace fourfold
