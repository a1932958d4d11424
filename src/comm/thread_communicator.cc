#include "comm/thread_communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>

#include "base/check.h"
#include "comm/copy.h"
#include "comm/reduce.h"

namespace fourfold {
namespace {

const void* at(const void* base, std::int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(base) + elements * dtype_size(dtype);
}
void* at(void* base, std::int64_t elements, DType dtype) {
  return static_cast<std::byte*>(base) + elements * dtype_size(dtype);
}

/// Short enough for a string without memory of its own.
constexpr const char* kNoMemory = "out of memory";

/// Whether the data travel with the call, so that nobody touches a peer's buffer.
bool travels_inline(const Call& call) {
  return call.kind == OpKind::kBarrier ||
         ((call.kind == OpKind::kAllReduce || call.kind == OpKind::kBroadcast) &&
          call.bytes() <= ThreadGroup::kInlineBytes);
}

}  // namespace

ThreadCommunicator::ThreadCommunicator(int rank, std::vector<int> members, std::string name,
                                       std::shared_ptr<ThreadHub> hub,
                                       std::shared_ptr<RankContext> context)
    : CallCommunicator(rank, std::move(members), std::move(name), std::move(context)),
      hub_(std::move(hub)),
      group_(hub_->join(this->context()->world_rank, this->members(), this->name())) {}

std::unique_ptr<Communicator> ThreadCommunicator::do_subgroup(std::span<const int> ranks,
                                                              std::string name) {
  const auto mine = std::ranges::find(ranks, rank());
  return std::make_unique<ThreadCommunicator>(static_cast<int>(mine - ranks.begin()),
                                              members_of(ranks), std::move(name), hub_, context());
}

const Call& ThreadCommunicator::peer(const Call& call, int r) {
  return group_->lane(call.lane).slots[static_cast<std::size_t>(r)].calls[call.seq & 1];
}

const std::byte* ThreadCommunicator::inline_data(const Call& call, int r) {
  return group_->lane(call.lane)
      .slots[static_cast<std::size_t>(r)]
      .inline_data[call.seq & 1]
      .data();
}

void ThreadCommunicator::execute(const Call& call) {
  if (call.kind == OpKind::kSend) return group_->send(rank(), call);
  if (call.kind == OpKind::kReceive) return group_->receive(rank(), call);
  arrive(call);
  std::optional<Pair> odd;
  if (hub_->options().check == CommCheck::kOn) odd = disagreement(call);
  ThreadGroup::LaneState& lane = group_->lane(call.lane);
  std::exception_ptr failure;
  try {
    if (odd) throw_mismatch(call, *odd);
    move_data(call);
  } catch (const Error&) {
    failure = std::current_exception();
  } catch (...) {
    // Out of memory on this rank alone. Its peers wait at the second gate, or have no second gate
    // and meet the closed group at their next operation.
    failure = std::current_exception();
    hub_->abort(context()->world_rank, kNoMemory);
    lane.broken.store(true);
  }
  // Ranks that disagree all find so, and leave together: the group stays usable.
  if (odd || !travels_inline(call)) {
    leave(lane);
    if (!failure && lane.broken.load()) throw hub_->failure(call, *group_, {});
  }
  if (failure) std::rethrow_exception(failure);
}

void ThreadCommunicator::arrive(const Call& call) {
  ThreadGroup::LaneState& lane = group_->lane(call.lane);
  ThreadGroup::Slot& mine = lane.slots[static_cast<std::size_t>(rank())];
  mine.calls[call.seq & 1] = call;
  if (travels_inline(call) && call.in_count > 0) {
    std::memcpy(mine.inline_data[call.seq & 1].data(), call.in,
                static_cast<std::size_t>(call.bytes()));
  }
  mine.arrived_seq.store(call.seq);
  const double seconds = hub_->options().timeout_seconds;
  const std::uint32_t ticket = lane.arrive.ticket();
  const Gate::Outcome outcome = lane.arrive.pass(mine.arrive_spins, deadline_after(seconds));
  if (outcome == Gate::Outcome::kPassed) return;
  const std::vector<int> missing = group_->missing(call.lane, call.seq);
  if (outcome == Gate::Outcome::kClosed) throw hub_->failure(call, *group_, missing);
  const Error error = timeout_error(call, name(), missing, seconds);
  // Closing decides against a last rank that arrives now: either it opened the gate before, and
  // this operation takes place, or nobody touches this rank's buffers any more.
  hub_->abort(context()->world_rank, error.what());
  if (!lane.arrive.passed_since(ticket)) throw error;
}

void ThreadCommunicator::leave(ThreadGroup::LaneState& lane) {
  lane.leave.pass(lane.slots[static_cast<std::size_t>(rank())].leave_spins, Deadline::max());
}

std::optional<ThreadCommunicator::Pair> ThreadCommunicator::disagreement(
    const Call& call) noexcept {
  const Call& first = peer(call, 0);
  for (int r = 1; r < size(); ++r) {
    if (!same_call(first, peer(call, r))) return Pair{0, r};
  }
  if (call.kind != OpKind::kAllToAll) return std::nullopt;
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      const Call& sender = peer(call, from);
      const Call& receiver = peer(call, to);
      if (sender.send_counts[static_cast<std::size_t>(to)] ==
          receiver.counts[static_cast<std::size_t>(from)]) {
        continue;
      }
      return Pair{from, to};
    }
  }
  return std::nullopt;
}

void ThreadCommunicator::throw_mismatch(const Call& call, const Pair& odd) {
  throw mismatch_error(
      members()[static_cast<std::size_t>(odd.first)], describe(peer(call, odd.first), name()),
      members()[static_cast<std::size_t>(odd.second)], describe(peer(call, odd.second), name()));
}

void ThreadCommunicator::move_data(const Call& call) {
  switch (call.kind) {
    case OpKind::kAllReduce:
      return travels_inline(call) ? all_reduce_inline(call) : all_reduce(call);
    case OpKind::kAllGather:
      return all_gather(call);
    case OpKind::kReduceScatter:
      return reduce_scatter(call);
    case OpKind::kAllToAll:
      return all_to_all(call);
    case OpKind::kBroadcast:
      return broadcast(call);
    case OpKind::kBarrier:
    case OpKind::kSend:
    case OpKind::kReceive:
      return;
  }
}

void ThreadCommunicator::all_reduce_inline(const Call& call) {
  std::vector<const void*> in;
  in.reserve(static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r) in.push_back(inline_data(call, r));
  reduce_ascending(call.dtype, call.op, in, {{call.out}}, call.out_count);
}

/// Each rank adds its slice of all buffers and stores the sum into all of them: no rank touches
/// another's slice, so nothing waits between the two halves.
void ThreadCommunicator::all_reduce(const Call& call) {
  // Slices begin at whole cache lines of the buffer, so that two ranks do not write to one.
  constexpr std::int64_t kLine = 64;
  const std::int64_t unit = kLine / dtype_size(call.dtype);
  const std::int64_t units = (call.out_count + unit - 1) / unit;
  const std::int64_t begin = std::min(units * rank() / size() * unit, call.out_count);
  const std::int64_t end = std::min(units * (rank() + 1) / size() * unit, call.out_count);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (int r = 0; r < size(); ++r) {
    out.push_back(at(peer(call, r).out, begin, call.dtype));
    in.push_back(out.back());
  }
  reduce_ascending(call.dtype, call.op, in, out, end - begin);
}

void ThreadCommunicator::all_gather(const Call& call) {
  std::int64_t offset = offset_of(call.counts, rank());
  for (int i = 0; i < size(); ++i) {
    // Everybody starts with itself, so that the ranks read from different peers at any time.
    const int r = (rank() + i) % size();
    if (r == 0) offset = 0;
    const std::int64_t count = call.counts[static_cast<std::size_t>(r)];
    copy_bytes(at(call.out, offset, call.dtype), peer(call, r).in, count * dtype_size(call.dtype));
    offset += count;
  }
}

void ThreadCommunicator::reduce_scatter(const Call& call) {
  const std::int64_t offset = offset_of(call.counts, rank());
  std::vector<const void*> in;
  for (int r = 0; r < size(); ++r) in.push_back(at(peer(call, r).in, offset, call.dtype));
  reduce_ascending(call.dtype, call.op, in, {{call.out}}, call.out_count);
}

void ThreadCommunicator::all_to_all(const Call& call) {
  for (int i = 0; i < size(); ++i) {
    const int r = (rank() + i) % size();
    const Call& from = peer(call, r);
    copy_bytes(at(call.out, offset_of(call.counts, r), call.dtype),
               at(from.in, offset_of(from.send_counts, rank()), call.dtype),
               call.counts[static_cast<std::size_t>(r)] * dtype_size(call.dtype));
  }
}

void ThreadCommunicator::broadcast(const Call& call) {
  if (call.root == rank()) return;
  const void* from = travels_inline(call) ? inline_data(call, call.root) : peer(call, call.root).in;
  copy_bytes(call.out, from, call.bytes());
}

}  // namespace fourfold
