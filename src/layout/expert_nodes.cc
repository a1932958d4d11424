#include "layout/expert_nodes.h"

#include <algorithm>
#include <map>

namespace fourfold {

ExpertNodes::ExpertNodes(const Grid& grid, Coords at, int expert_ranks, int ranks_on_node) {
  const ExpertGrid experts(grid.shape(), expert_ranks);
  const auto node_of = [&](Coords c) {
    return ranks_on_node == 0 ? 0 : grid.rank(c).value / ranks_on_node;
  };
  std::map<int, std::vector<int>> by_node;
  const std::vector<Coords> peers = experts.rank_peers(at);
  for (std::size_t e = 0; e < peers.size(); ++e) {
    by_node[node_of(peers[e])].push_back(static_cast<int>(e));
  }
  const int mine = experts.place(at).rank;
  for (auto& [number, ranks] : by_node) {
    const auto found = std::ranges::find(ranks, mine);
    if (found != ranks.end()) {
      node = nodes();
      place = static_cast<int>(found - ranks.begin());
    }
    members.push_back(std::move(ranks));
  }
}

bool ExpertNodes::even() const {
  return std::ranges::all_of(members,
                             [&](const auto& m) { return m.size() == members.front().size(); });
}

std::vector<int> ExpertNodes::at_place(int i) const {
  std::vector<int> ranks;
  for (const auto& of_node : members) ranks.push_back(of_node[static_cast<std::size_t>(i)]);
  return ranks;
}

std::vector<int> ExpertNodes::by_place() const {
  std::vector<int> ranks;
  for (int i = 0; i < on_node(); ++i) {
    const std::vector<int> at = at_place(i);
    ranks.insert(ranks.end(), at.begin(), at.end());
  }
  return ranks;
}

std::vector<int> ExpertNodes::by_node() const {
  std::vector<int> ranks;
  for (const auto& of_node : members) ranks.insert(ranks.end(), of_node.begin(), of_node.end());
  return ranks;
}

}  // namespace fourfold
