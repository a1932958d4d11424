#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/lanes.h"
#include "comm/trace.h"

namespace fourfold {

/// What all communicators of one rank share, whatever their group.
struct RankContext {
  RankContext(int rank, const CommOptions& comm_options)
      : world_rank(rank), options(comm_options), trace(comm_options.trace_length) {}

  /// Keeps the error of a Work that nobody waited for (the first one), for throw_dropped().
  void keep_dropped(std::exception_ptr error) noexcept;
  void throw_dropped();
  /// Sleeps until an operation is over that takes the rank's link that long from now on, or from
  /// when those before it are over.
  void occupy_link(double seconds);

  const int world_rank;
  const CommOptions options;
  std::atomic<std::int64_t> step{0};
  TraceRing trace;
  Timeline timeline;
  LaneThreads lanes;

 private:
  std::mutex mutex_;
  std::exception_ptr dropped_;
  std::atomic<bool> has_dropped_{false};
  std::mutex link_mutex_;
  double link_free_ = 0;  ///< When, of SteadyClock.
};

/// A communicator whose backend does one thing: execute a Call. This class numbers the calls, runs
/// them in their lanes and traces them.
class CallCommunicator : public Communicator {
 public:
  void set_step(Step step) override { context_->step.store(step.value); }
  std::vector<std::string> trace() const override { return context_->trace.lines(); }
  Timeline& timeline() override { return context_->timeline; }

 protected:
  /// `members` are the world ranks of the group, in its order.
  CallCommunicator(int rank, std::vector<int> members, std::string name,
                   std::shared_ptr<RankContext> context);

  /// Returns when the call is done on this rank; throws Error. Called by the lane's thread.
  virtual void execute(const Call& call) = 0;
  /// To be called by the destructor of the backend's class: waits until no lane uses it.
  void drain() noexcept;

  const std::vector<int>& members() const { return members_; }
  const std::shared_ptr<RankContext>& context() const { return context_; }
  /// World ranks of the group `ranks` of this one.
  std::vector<int> members_of(std::span<const int> ranks) const;

 private:
  Work do_all_reduce(Buffer data, ReduceOp op, Lane lane) final;
  Work do_all_gather(ConstBuffer in, Buffer out, std::span<const std::int64_t> counts,
                     Lane lane) final;
  Work do_reduce_scatter(ConstBuffer in, Buffer out, std::span<const std::int64_t> counts,
                         ReduceOp op, Lane lane) final;
  Work do_all_to_all(ConstBuffer send, std::span<const std::int64_t> send_counts, Buffer receive,
                     std::span<const std::int64_t> receive_counts, Lane lane) final;
  Work do_broadcast(Buffer data, int root, Lane lane) final;
  Work do_send(ConstBuffer data, int to, Lane lane) final;
  Work do_receive(Buffer data, int from, Lane lane) final;
  Work do_barrier(Lane lane) final;

  Work submit(Call call, Lane lane);
  void perform(const Call& call);

  const std::vector<int> members_;
  const std::shared_ptr<RankContext> context_;
  template <class T>
  using ByLane = std::array<T, kLaneKinds>;
  const int channel_;                         ///< Of the group, for channel_of().
  ByLane<std::string> tracks_;                ///< What the lanes are called in a timeline.
  ByLane<std::int64_t> next_seq_{};           ///< Of collectives: equal on all ranks.
  ByLane<std::int64_t> next_pairwise_seq_{};  ///< Of sends and receives.
  ByLane<std::shared_ptr<Job>> last_job_{};
};

}  // namespace fourfold
