#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/call_communicator.h"
#include "comm/exchange.h"
#include "comm/message_world.h"

namespace fourfold {

/// A group of ranks that exchange messages. Each operation is one or two rounds in which every rank
/// exchanges pieces with every other: a sum of n bytes over p ranks sends 2·n·(p-1)/p bytes from
/// each, as a ring does, and adds in ascending rank. Every rank hears from every other, so one that
/// is missing is known by name.
class MessageCommunicator final : public CallCommunicator {
 public:
  MessageCommunicator(int rank, std::vector<int> members, std::string name,
                      std::shared_ptr<MessageWorld> world);
  ~MessageCommunicator() override { drain(); }

  void abort(const std::string& reason) noexcept override {
    world_->fail(context()->world_rank, reason, true);
  }

 private:
  void execute(const Call& call) override;
  std::unique_ptr<Communicator> do_subgroup(std::span<const int> ranks, std::string name) override;

  void all_reduce(const Call& call, MessageHeader& header);
  void all_reduce_whole(const Call& call, MessageHeader& header);
  void all_gather(const Call& call, MessageHeader& header);
  void reduce_scatter(const Call& call, MessageHeader& header);
  void all_to_all(const Call& call, MessageHeader& header);
  void broadcast(const Call& call, MessageHeader& header);
  void broadcast_in_slices(const Call& call, MessageHeader& header);
  void barrier(const Call& call, MessageHeader& header);
  void pair(const Call& call, MessageHeader& header);

  /// A rank's bytes within a buffer of all ranks.
  struct Slice {
    std::byte* data;
    std::int64_t bytes;
  };
  /// Every rank sends its slice to all others.
  void gather_slices(const Call& call, MessageHeader& header, const std::vector<Slice>& slices);
  /// One exchange of parts[r] with each rank r, then result := op over the ranks' parts for this
  /// one.
  void reduce_slices(const Call& call, MessageHeader& header, const std::vector<Slice>& parts,
                     void* result);

  int member(int r) const { return members()[static_cast<std::size_t>(r)]; }

  const std::shared_ptr<MessageWorld> world_;
  const std::uint64_t group_context_;
};

}  // namespace fourfold
