#pragma once

#include <map>
#include <memory>

#include "comm/communicator.h"
#include "layout/grid.h"

namespace fourfold {

/// A rank's place in the grid and its groups along the axes. Groups are made when first asked for,
/// without communication, and die with this object. A rank has one.
class ProcessGrid {
 public:
  /// `world` has as many ranks as the grid and outlives this object.
  ProcessGrid(Grid grid, Communicator& world);

  const Grid& grid() const { return grid_; }
  Coords coords() const { return coords_; }
  Communicator& world() { return world_; }

  /// The ranks that differ from this one along `axes` only, in the grid's group order; its rank is
  /// grid().group_rank(coords(), axes).
  Communicator& group(AxisSet axes);

  /// The x ranks that hold the same one of `parts` parts, where there are fewer parts than x ranks
  /// (KV heads): those with the same x·parts/Gx (and y, z, data). Gx must be a multiple of parts,
  /// or parts one of Gx: then nobody shares, and the group is this rank alone.
  Communicator& sharers_of_x(int parts);

  /// With `ranks` expert ranks (ExpertGrid): those that exchange tokens with this one, that store
  /// shards of the same weights, that replicate this rank's shard; in the order of those numbers.
  /// With 1 the last two are the groups over z and over data.
  Communicator& experts(int ranks);
  Communicator& storers(int ranks);
  Communicator& replicas(int ranks);
  /// Those of experts(ranks) that `which` numbers, of which this rank is one.
  Communicator& among_experts(int ranks, const std::vector<int>& which, std::string name);

 private:
  Communicator& make(std::unique_ptr<Communicator>& place, const std::vector<Coords>& members,
                     std::string name);
  Communicator& make(std::unique_ptr<Communicator>& place, const std::vector<WorldRank>& ranks,
                     std::string name);

  const Grid grid_;
  Communicator& world_;
  const Coords coords_;
  std::map<int, std::unique_ptr<Communicator>> groups_;   ///< By AxisSet::bits().
  std::map<int, std::unique_ptr<Communicator>> sharers_;  ///< By number of parts.
  /// By number of expert ranks.
  std::map<int, std::unique_ptr<Communicator>> experts_, storers_, replicas_;
  std::map<std::pair<int, std::vector<int>>, std::unique_ptr<Communicator>> among_experts_;
};

}  // namespace fourfold
