#include "comm/call_communicator.h"

#include <fmt/core.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "comm/emulated_network.h"

namespace fourfold {
namespace {

/// The handle of a job in a lane.
class LaneWork final : public WorkState {
 public:
  /// `name` is of the operation and outlives this, as does `group`.
  LaneWork(std::shared_ptr<Job> job, std::shared_ptr<RankContext> context, std::string_view name,
           std::string_view group)
      : job_(std::move(job)), context_(std::move(context)), name_(name), group_(group) {}

  bool done() const override { return job_->done(); }
  void wait() override {
    if (!job_->done()) {
      const TimedSpan span(context_->timeline, TimelineSpan::Kind::kWait, name_, group_);
      job_->wait();
    }
    if (job_->error()) std::rethrow_exception(job_->error());
  }
  void drop() noexcept override {
    job_->wait();
    if (job_->error()) context_->keep_dropped(job_->error());
  }

 private:
  std::shared_ptr<Job> job_;
  std::shared_ptr<RankContext> context_;
  std::string_view name_, group_;
};

}  // namespace

void RankContext::keep_dropped(std::exception_ptr error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!dropped_) dropped_ = std::move(error);
  has_dropped_.store(true);
}

void RankContext::throw_dropped() {
  if (!has_dropped_.load()) return;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = std::exchange(dropped_, nullptr);
    has_dropped_.store(false);
  }
  if (error) std::rethrow_exception(error);
}

void RankContext::occupy_link(double seconds) {
  double until = SteadyClock().seconds();
  {
    const std::lock_guard lock(link_mutex_);
    until = link_free_ = std::max(link_free_, until) + seconds;
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(until - SteadyClock().seconds()));
}

CallCommunicator::CallCommunicator(int rank, std::vector<int> members, std::string name,
                                   std::shared_ptr<RankContext> context)
    : Communicator(rank, static_cast<int>(members.size()), std::move(name)),
      members_(std::move(members)),
      context_(std::move(context)),
      channel_(group_channel(this->name())) {
  for (std::size_t lane = 0; lane < kLaneKinds; ++lane) {
    tracks_[lane] = static_cast<Lane>(lane) == Lane::kCaller
                        ? std::string(kMainTrack)
                        : fmt::format("{} {}", lane_name(static_cast<Lane>(lane)), this->name());
  }
}

void CallCommunicator::drain() noexcept {
  for (const auto& job : last_job_) {
    if (job) job->wait();
  }
}

std::vector<int> CallCommunicator::members_of(std::span<const int> ranks) const {
  std::vector<int> members;
  members.reserve(ranks.size());
  for (const int r : ranks) members.push_back(members_[static_cast<std::size_t>(r)]);
  return members;
}

void CallCommunicator::perform(const Call& call) {
  const TimedSpan span(context_->timeline, TimelineSpan::Kind::kCommunicate, op_name(call.kind),
                       name(), tracks_[static_cast<std::size_t>(call.lane)], call.bytes());
  const std::uint64_t number = context_->trace.begin(call, name());
  try {
    execute(call);
  } catch (...) {
    context_->trace.end(number, false);
    throw;
  }
  if (context_->options.network) {
    context_->occupy_link(context_->options.network->seconds(call, members_));
  }
  context_->trace.end(number, true);
}

Work CallCommunicator::submit(Call call, Lane lane) {
  context_->throw_dropped();
  const auto index = static_cast<std::size_t>(lane);
  call.lane = lane;
  call.channel = channel_of(lane, channel_);
  const bool pairwise = call.kind == OpKind::kSend || call.kind == OpKind::kReceive;
  call.seq = (pairwise ? next_pairwise_seq_ : next_seq_)[index]++;
  call.step = context_->step.load();
  if (lane == Lane::kCaller) {
    perform(call);
    return Work();
  }
  // The caller's counts end with the call; the job has copies.
  auto run = [this, call, counts = std::vector(call.counts.begin(), call.counts.end()),
              send_counts =
                  std::vector(call.send_counts.begin(), call.send_counts.end())]() mutable {
    call.counts = counts;
    call.send_counts = send_counts;
    perform(call);
  };
  auto job = std::make_shared<Job>(std::move(run));
  last_job_[index] = job;
  context_->lanes.post(call.channel, job);
  return Work(std::make_unique<LaneWork>(std::move(job), context_, op_name(call.kind), name()));
}

Work CallCommunicator::do_all_reduce(Buffer data, ReduceOp op, Lane lane) {
  Call call{.kind = OpKind::kAllReduce, .op = op, .dtype = data.dtype};
  call.in = call.out = data.data;
  call.in_count = call.out_count = data.count;
  return submit(call, lane);
}

Work CallCommunicator::do_all_gather(ConstBuffer in, Buffer out,
                                     std::span<const std::int64_t> counts, Lane lane) {
  Call call{.kind = OpKind::kAllGather, .dtype = out.dtype, .in = in.data, .out = out.data};
  call.in_count = in.count;
  call.out_count = out.count;
  call.counts = counts;
  return submit(call, lane);
}

Work CallCommunicator::do_reduce_scatter(ConstBuffer in, Buffer out,
                                         std::span<const std::int64_t> counts, ReduceOp op,
                                         Lane lane) {
  Call call{.kind = OpKind::kReduceScatter, .op = op, .dtype = out.dtype};
  call.in = in.data;
  call.out = out.data;
  call.in_count = in.count;
  call.out_count = out.count;
  call.counts = counts;
  return submit(call, lane);
}

Work CallCommunicator::do_all_to_all(ConstBuffer send, std::span<const std::int64_t> send_counts,
                                     Buffer receive, std::span<const std::int64_t> receive_counts,
                                     Lane lane) {
  Call call{.kind = OpKind::kAllToAll, .dtype = send.dtype, .in = send.data};
  call.out = receive.data;
  call.in_count = send.count;
  call.out_count = receive.count;
  call.counts = receive_counts;
  call.send_counts = send_counts;
  return submit(call, lane);
}

Work CallCommunicator::do_broadcast(Buffer data, int root, Lane lane) {
  Call call{.kind = OpKind::kBroadcast, .dtype = data.dtype, .root = root};
  call.in = call.out = data.data;
  call.in_count = call.out_count = data.count;
  return submit(call, lane);
}

Work CallCommunicator::do_send(ConstBuffer data, int to, Lane lane) {
  Call call{.kind = OpKind::kSend, .dtype = data.dtype, .root = to, .in = data.data};
  call.in_count = data.count;
  return submit(call, lane);
}

Work CallCommunicator::do_receive(Buffer data, int from, Lane lane) {
  Call call{.kind = OpKind::kReceive, .dtype = data.dtype, .root = from, .out = data.data};
  call.out_count = data.count;
  return submit(call, lane);
}

Work CallCommunicator::do_barrier(Lane lane) {
  return submit(Call{.kind = OpKind::kBarrier}, lane);
}

}  // namespace fourfold
