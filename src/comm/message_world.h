#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/call_communicator.h"
#include "comm/transport.h"

namespace fourfold {

/// What all communicators of one rank share that are made of messages. Once an operation has
/// failed, messages may be on their way that nobody takes, so nothing works any more: every later
/// operation gives the first failure.
class MessageWorld {
 public:
  MessageWorld(std::unique_ptr<Transport> transport, std::shared_ptr<RankContext> context);

  Transport& transport() { return *transport_; }
  const CommOptions& options() const { return context_->options; }
  const std::shared_ptr<RankContext>& context() const { return context_; }
  /// Turns of spinning before a wait lets go of its core: none where ranks exceed cores.
  int spins() const { return spins_; }

  /// A number for a group, the same on all its members; differs between groups that this rank makes
  /// of the same ranks and name.
  std::uint64_t new_context(const std::vector<int>& members, const std::string& name);

  /// Records the first failure and tells the other ranks, unless it came from them.
  void fail(int rank, const std::string& reason, bool tell) noexcept;
  /// Whether this rank has failed, or a peer that has told.
  bool failed();
  /// That failure, as one of `call`, for which the world ranks `missing` had not arrived.
  Error failure(const Call& call, const std::string& group, const std::vector<int>& missing);
  /// Keeps memory that abandoned messages may still use. Takes list nodes, so that it cannot fail
  /// where memory is short.
  using Memory = std::list<std::vector<std::byte>>;
  void bury(Memory&& memory) noexcept;

 private:
  const std::shared_ptr<RankContext> context_;
  const int spins_;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  int failed_rank_ = -1;
  std::string reason_;
  std::map<std::pair<std::vector<int>, std::string>, std::uint64_t> times_made_;
  Memory buried_;
  std::unique_ptr<Transport> transport_;  ///< Last: it ends before what its messages may use.
};

}  // namespace fourfold
