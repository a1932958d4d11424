#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "comm/call.h"
#include "comm/gate.h"

namespace fourfold {

class ThreadHub;

/// What the ranks of one group share: where they publish their calls and wait for each other.
class ThreadGroup {
 public:
  /// Data of at most this many bytes are published with the call.
  static constexpr std::int64_t kInlineBytes = 256;

  /// A rank's published call. Two of each, used in turn: an operation with one gate may be followed
  /// by the next while a slow peer still reads the first.
  struct Slot {
    alignas(64) std::array<Call, 2> calls;
    alignas(16) std::array<std::array<std::byte, kInlineBytes>, 2> inline_data;
    std::atomic<std::int64_t> arrived_seq{-1};   ///< The last operation it arrived at.
    SpinBudget arrive_spins{0}, leave_spins{0};  ///< Used by this rank alone.
  };

  struct LaneState {
    LaneState(int size, int spins);
    Gate arrive;  ///< All have published; closed when the group ends.
    Gate leave;   ///< All are done with each other's buffers. Never closed: peers that passed
                  ///< `arrive` always get here.
    std::atomic<bool> broken{false};  ///< A rank could not do its part after `arrive`.
    std::vector<Slot> slots;          ///< By rank of the group.
  };

  ThreadGroup(ThreadHub& hub, std::vector<int> members, std::string name);

  const std::vector<int>& members() const { return members_; }
  const std::string& name() const { return name_; }
  LaneState& lane(Lane lane) { return *lanes_[static_cast<std::size_t>(lane)]; }
  /// World ranks that have not arrived at operation `seq` of the lane.
  std::vector<int> missing(Lane lane, std::int64_t seq);
  bool contains(int world_rank) const;

  /// Sends and receives meet here; both return when the data are copied. Throw Error.
  void send(int rank, const Call& call);
  void receive(int rank, const Call& call);

  void close();

 private:
  /// One message that waits for its receiver.
  struct Message {
    const Call* call;
    bool taken = false;  ///< A receiver copies; the sender may not leave.
    bool done = false;
    std::string disagreement{};  ///< Describes the receiver's call when it does not fit.
  };
  using Pair = std::tuple<Lane, int, int>;  ///< Lane, sender, receiver.

  /// The Error of a send or receive whose peer, `peer` of the group, did not come.
  [[noreturn]] void throw_unmet(const Call& call, int rank, bool closed);

  ThreadHub& hub_;
  const std::vector<int> members_;
  const std::string name_;
  std::vector<std::unique_ptr<LaneState>> lanes_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Pair, std::deque<Message*>> messages_;
  bool closed_ = false;
};

/// What all ranks of a ThreadWorld share.
class ThreadHub {
 public:
  ThreadHub(int size, const CommOptions& options);

  int size() const { return size_; }
  const CommOptions& options() const { return options_; }
  /// Turns of spinning before a wait sleeps: none where ranks exceed cores, because the spinner
  /// would hold the core that its peer needs.
  int spins() const { return spins_; }

  /// The group of these members and name that `rank` joins: the same object for all members, for
  /// the n-th time that each asks.
  std::shared_ptr<ThreadGroup> join(int rank, const std::vector<int>& members,
                                    const std::string& name);

  /// The first call counts: records the failure, then closes every group.
  void abort(int rank, const std::string& reason) noexcept;
  /// Closes the groups of a rank that has ended.
  void finish(int rank) noexcept;
  /// The Error of a rank that finds its group closed, with the world ranks that it waited for.
  Error failure(const Call& call, const ThreadGroup& group, const std::vector<int>& missing);

 private:
  using Key = std::pair<std::vector<int>, std::string>;
  struct Open {
    std::shared_ptr<ThreadGroup> group;
    int joined = 0;
  };

  bool closed_for(const ThreadGroup& group) const;

  const int size_;
  const CommOptions options_;
  const int spins_;

  std::mutex mutex_;
  std::vector<std::map<Key, int>> times_joined_;    ///< By world rank.
  std::map<std::pair<Key, int>, Open> open_;        ///< Groups that not all members have joined.
  std::vector<std::weak_ptr<ThreadGroup>> groups_;  ///< To close them.
  std::vector<bool> finished_;                      ///< By world rank.
  bool failed_ = false;
  int failed_rank_ = -1;
  std::string reason_;
};

}  // namespace fourfold
