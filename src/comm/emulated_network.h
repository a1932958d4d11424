#pragma once

#include <cstdint>
#include <span>

#include "comm/call.h"

namespace fourfold {

/// A network that is not there: operations wait as long as one would take. For developing and
/// showing overlap on one machine; what is measured over it is no measurement of a network.
struct EmulatedNetwork {
  struct Link {
    double bytes_per_second = 0;
    double latency_seconds = 0;
  };
  int devices_per_node = 1;  ///< Ranks, in world order.
  Link inside;               ///< Between ranks of a node.
  Link between;              ///< Between nodes: a node's, shared by its ranks.

  /// What an operation of a group takes when all have come, by ring algorithms. `members` are the
  /// group's world ranks. Where the ranks of a group lie `stride` apart, as many groups share a
  /// node's link as lie side by side in it: its rate is divided by min(devices per node, stride)
  /// (the 4D paper, arXiv 2305.13525, Section 5, equation 7).
  double seconds(const Call& call, std::span<const int> members) const;
};

}  // namespace fourfold
