#pragma once

#include <vector>

#include "comm/communicator.h"
#include "model/routing.h"
#include "train/verify_grid.h"

namespace fourfold {

/// The tokens whose experts in `own`, this rank's part of a step, are not those of `wanted`, in any
/// order; of all ranks, the same on each. Collective over `world`.
std::vector<OtherChoice> find_other_choices(const RoutingTable& own, const RoutingTable& wanted,
                                            int top_k, int step, Communicator& world);

}  // namespace fourfold
