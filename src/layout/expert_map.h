#pragma once

#include <vector>

namespace fourfold {

/// Which expert rank holds which experts.
enum class ExpertPlacement {
  kContiguous,   ///< Runs of neighbours, the first ones one longer where they do not divide.
  kInterleaved,  ///< Expert e is with rank e mod ranks.
};

/// Where the experts of a layer are: the same map for computing, for checkpoints and for plans.
class ExpertMap {
 public:
  ExpertMap(int experts, int ranks, ExpertPlacement placement);

  int experts() const { return static_cast<int>(rank_of_.size()); }
  int ranks() const { return static_cast<int>(of_rank_.size()); }
  /// The expert rank that holds it, and its place among that rank's experts.
  int rank_of(int expert) const { return rank_of_[static_cast<std::size_t>(expert)]; }
  int slot_of(int expert) const { return slot_of_[static_cast<std::size_t>(expert)]; }
  /// The experts of a rank, ascending.
  const std::vector<int>& of_rank(int rank) const {
    return of_rank_[static_cast<std::size_t>(rank)];
  }

 private:
  std::vector<int> rank_of_, slot_of_;
  std::vector<std::vector<int>> of_rank_;
};

}  // namespace fourfold
