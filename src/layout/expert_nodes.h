#pragma once

#include <vector>

#include "layout/expert_grid.h"

namespace fourfold {

/// The expert ranks that exchange tokens with one rank, by node, for an exchange in two stages: on
/// the node, then between nodes (one message to each node in place of one to each of its ranks).
/// Rows to the expert rank at place j of node m go by way of the one at place j of the own node.
struct ExpertNodes {
  /// `ranks_on_node` neighbouring world ranks share a node; 0: all do.
  ExpertNodes(const Grid& grid, Coords at, int expert_ranks, int ranks_on_node);

  std::vector<std::vector<int>> members;  ///< Of each node its expert ranks, ascending.
  int node = 0, place = 0;                ///< This rank's.

  int nodes() const { return static_cast<int>(members.size()); }
  int on_node() const { return static_cast<int>(members.front().size()); }
  /// Whether all nodes have as many: the two stages need it.
  bool even() const;
  /// Whether there is more than one stage.
  bool staged() const { return nodes() > 1 && on_node() > 1; }

  const std::vector<int>& own_node() const { return members[static_cast<std::size_t>(node)]; }
  std::vector<int> at_place(int i) const;  ///< One rank of each node.
  /// The expert ranks by place, then node: how rows leave.
  std::vector<int> by_place() const;
  /// The expert ranks by node, then place: how rows arrive.
  std::vector<int> by_node() const;
};

}  // namespace fourfold
