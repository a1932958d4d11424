#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/call_communicator.h"
#include "comm/thread_hub.h"

namespace fourfold {

/// One thread rank's end of a group (thread_world.h). Every collective is: publish the call, pass
/// the group's `arrive` gate, compare the calls, move the data, pass the `leave` gate. Tiny sums,
/// tiny broadcasts and barriers carry their data with the call and need the first gate only.
class ThreadCommunicator final : public CallCommunicator {
 public:
  ThreadCommunicator(int rank, std::vector<int> members, std::string name,
                     std::shared_ptr<ThreadHub> hub, std::shared_ptr<RankContext> context);
  ~ThreadCommunicator() override { drain(); }

  void abort(const std::string& reason) noexcept override {
    hub_->abort(context()->world_rank, reason);
  }

 private:
  void execute(const Call& call) override;
  std::unique_ptr<Communicator> do_subgroup(std::span<const int> ranks, std::string name) override;

  void arrive(const Call& call);
  void leave(ThreadGroup::LaneState& lane);
  void move_data(const Call& call);
  void all_reduce(const Call& call);
  void all_reduce_inline(const Call& call);
  void all_gather(const Call& call);
  void reduce_scatter(const Call& call);
  void all_to_all(const Call& call);
  void broadcast(const Call& call);
  /// Two ranks of the group whose calls do not fit together; the same on every rank. Allocates
  /// nothing, so that a rank that is out of memory goes through the same gates as the others.
  using Pair = std::pair<int, int>;
  std::optional<Pair> disagreement(const Call& call) noexcept;
  [[noreturn]] void throw_mismatch(const Call& call, const Pair& odd);

  /// The call that rank `r` of the group has published for the same operation as `call`.
  const Call& peer(const Call& call, int r);
  const std::byte* inline_data(const Call& call, int r);

  const std::shared_ptr<ThreadHub> hub_;
  const std::shared_ptr<ThreadGroup> group_;
};

}  // namespace fourfold
