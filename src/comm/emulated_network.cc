#include "comm/emulated_network.h"

#include <algorithm>
#include <cstdlib>

namespace fourfold {
namespace {

/// Messages that follow each other, and the share of the bytes that each rank sends.
struct Cost {
  double messages = 0, share = 0;
};

Cost ring_cost(OpKind kind, double ranks) {
  const double others = ranks - 1;
  switch (kind) {
    case OpKind::kAllReduce:
      return {2 * others, 2 * others / ranks};
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll:
      return {others, others / ranks};
    case OpKind::kBroadcast:
      return {others, 1};
    case OpKind::kSend:
    case OpKind::kReceive:
      return {1, 1};
    case OpKind::kBarrier:
      return {others, 0};
  }
  return {};
}

}  // namespace

double EmulatedNetwork::seconds(const Call& call, std::span<const int> members) const {
  const bool one_node = std::ranges::all_of(members, [&](int rank) {
    return rank / devices_per_node == members.front() / devices_per_node;
  });
  const int stride = std::abs(members[1] - members[0]);
  const double sharing = one_node ? 1 : std::min(devices_per_node, stride);
  const Link& link = one_node ? inside : between;
  const Cost cost = ring_cost(call.kind, static_cast<double>(members.size()));
  return cost.messages * link.latency_seconds +
         cost.share * static_cast<double>(call.bytes()) * sharing / link.bytes_per_second;
}

}  // namespace fourfold
