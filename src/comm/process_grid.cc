#include "comm/process_grid.h"

#include <fmt/core.h>

#include <ranges>

#include "base/check.h"
#include "layout/expert_grid.h"

namespace fourfold {

ProcessGrid::ProcessGrid(Grid grid, Communicator& world)
    : grid_(std::move(grid)), world_(world), coords_(grid_.coords(WorldRank(world.rank()))) {
  FF_CHECK(grid_.size() == world.size(), "a grid {} over {} ranks", grid_.shape().name(),
           world.size());
}

Communicator& ProcessGrid::make(std::unique_ptr<Communicator>& place,
                                const std::vector<WorldRank>& ranks, std::string name) {
  if (!place) {
    std::vector<int> members;
    members.reserve(ranks.size());
    for (const WorldRank r : ranks) members.push_back(static_cast<int>(r.value));
    place = world_.subgroup(members, std::move(name));
  }
  return *place;
}

Communicator& ProcessGrid::group(AxisSet axes) {
  std::unique_ptr<Communicator>& place = groups_[axes.bits()];
  if (place) return *place;
  return make(place, grid_.group(coords_, axes), axes.name());
}

Communicator& ProcessGrid::sharers_of_x(int parts) {
  const int gx = grid_.shape().x;
  FF_CHECK(parts >= 1 && (gx % parts == 0 || parts % gx == 0), "{} parts over {} x ranks", parts,
           gx);
  std::unique_ptr<Communicator>& place = sharers_[parts];
  if (place) return *place;
  std::vector<WorldRank> ranks;
  for (Coords c = coords_; const int x : std::views::iota(0, gx)) {
    c.x = x;
    const bool shares = parts < gx ? x * parts / gx == coords_.x * parts / gx : x == coords_.x;
    if (shares) ranks.push_back(grid_.rank(c));
  }
  return make(place, ranks, fmt::format("x sharing {} parts", parts));
}

Communicator& ProcessGrid::make(std::unique_ptr<Communicator>& place,
                                const std::vector<Coords>& members, std::string name) {
  std::vector<WorldRank> ranks;
  for (const Coords& member : members) ranks.push_back(grid_.rank(member));
  return make(place, ranks, std::move(name));
}

Communicator& ProcessGrid::experts(int ranks) {
  const ExpertGrid grid(grid_.shape(), ranks);
  return make(experts_[ranks], grid.rank_peers(coords_), fmt::format("{} expert ranks", ranks));
}

Communicator& ProcessGrid::among_experts(int ranks, const std::vector<int>& which,
                                         std::string name) {
  std::unique_ptr<Communicator>& place = among_experts_[{ranks, which}];
  if (!place) place = experts(ranks).subgroup(which, std::move(name));
  return *place;
}

Communicator& ProcessGrid::storers(int ranks) {
  if (ranks == 1) return group({Axis::kZ});
  const ExpertGrid grid(grid_.shape(), ranks);
  return make(storers_[ranks], grid.storer_peers(coords_), "z of experts");
}

Communicator& ProcessGrid::replicas(int ranks) {
  if (ranks == 1) return group({Axis::kData});
  const ExpertGrid grid(grid_.shape(), ranks);
  return make(replicas_[ranks], grid.replica_peers(coords_), "data of experts");
}

}  // namespace fourfold
