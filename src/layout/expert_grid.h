#pragma once

#include <vector>

#include "layout/grid.h"

namespace fourfold {

/// How ranks over experts lie inside z·data. With t = z + Gz·data and E expert ranks, of which E
/// divides Gz, or Gz divides E and E divides Gz·Gdata:
///   E | Gz: expert rank z mod E; the Gz/E ranks of equal z mod E store its weights in shards, data
///           replicates them.
///   Gz | E: expert rank t mod E; no shards, data div (E/Gz) replicates.
/// E = 1 is the way of everything that is no expert: stored over z, replicated over data. (TED:
/// Singh et al., "A Hybrid Tensor-Expert-Data Parallelism Approach", arXiv 2303.06318, Section 3.)
class ExpertGrid {
 public:
  ExpertGrid(const GridShape& shape, int ranks);
  static bool fits(const GridShape& shape, int ranks);

  int ranks() const { return ranks_; }
  int storers() const { return storers_; }    ///< Ranks that hold shards of the same weights.
  int replicas() const { return replicas_; }  ///< Ranks that hold the same shard.

  struct Place {
    int rank = 0, storer = 0, replica = 0;
  };
  Place place(Coords at) const;

  /// The ranks that differ from the one at `at` by one of these numbers only, ascending in it: who
  /// exchanges tokens with it, who stores shards of its weights, who replicates its shard.
  std::vector<Coords> rank_peers(Coords at) const;
  std::vector<Coords> storer_peers(Coords at) const;
  std::vector<Coords> replica_peers(Coords at) const;

 private:
  Coords coords(Place place, Coords like) const;
  template <class Set>
  std::vector<Coords> peers(Coords at, int count, Set set) const;

  int z_;
  int ranks_;
  int storers_, replicas_;
};

}  // namespace fourfold
