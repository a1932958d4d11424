#include "layout/expert_grid.h"

#include "base/check.h"

namespace fourfold {

bool ExpertGrid::fits(const GridShape& shape, int ranks) {
  if (ranks < 1) return false;
  if (shape.z % ranks == 0) return true;
  return ranks % shape.z == 0 && (shape.z * shape.data) % ranks == 0;
}

ExpertGrid::ExpertGrid(const GridShape& shape, int ranks)
    : z_(shape.z),
      ranks_(ranks),
      storers_(shape.z % ranks == 0 ? shape.z / ranks : 1),
      replicas_(shape.z * shape.data / (ranks * storers_)) {
  FF_CHECK(fits(shape, ranks), "{} expert ranks on {}", ranks, shape.name());
}

ExpertGrid::Place ExpertGrid::place(Coords at) const {
  const int t = at.z + z_ * at.data;
  return {t % ranks_, t / ranks_ % storers_, t / (ranks_ * storers_)};
}

Coords ExpertGrid::coords(Place place, Coords like) const {
  const int t = place.rank + ranks_ * (place.storer + storers_ * place.replica);
  like.z = t % z_;
  like.data = t / z_;
  return like;
}

template <class Set>
std::vector<Coords> ExpertGrid::peers(Coords at, int count, Set set) const {
  std::vector<Coords> all;
  Place place = this->place(at);
  for (int i = 0; i < count; ++i) {
    set(place, i);
    all.push_back(coords(place, at));
  }
  return all;
}

std::vector<Coords> ExpertGrid::rank_peers(Coords at) const {
  return peers(at, ranks_, [](Place& place, int i) { place.rank = i; });
}
std::vector<Coords> ExpertGrid::storer_peers(Coords at) const {
  return peers(at, storers_, [](Place& place, int i) { place.storer = i; });
}
std::vector<Coords> ExpertGrid::replica_peers(Coords at) const {
  return peers(at, replicas_, [](Place& place, int i) { place.replica = i; });
}

}  // namespace fourfold
