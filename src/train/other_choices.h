#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "model/routing.h"

namespace fourfold {

/// A token that chose other experts than on one rank.
struct OtherChoice {
  int step = 0, block = 0;
  std::int64_t sample = 0, position = 0;
  double margin = 0;  ///< By which the last choice beat the next expert on one rank.
};

/// The tokens whose experts in `own`, this rank's part of a step, are not those of `wanted`, in any
/// order; of all ranks, the same on each. Collective over `world`.
std::vector<OtherChoice> find_other_choices(const RoutingTable& own, const RoutingTable& wanted,
                                            int top_k, int step, Communicator& world);

}  // namespace fourfold
