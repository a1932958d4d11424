#include "comm/thread_hub.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "device/intra_op_threads.h"

namespace fourfold {

ThreadGroup::LaneState::LaneState(int size, int spins)
    : arrive(size), leave(size), slots(static_cast<std::size_t>(size)) {
  for (Slot& slot : slots) slot.arrive_spins = slot.leave_spins = SpinBudget(spins);
}

ThreadGroup::ThreadGroup(ThreadHub& hub, std::vector<int> members, std::string name)
    : hub_(hub), members_(std::move(members)), name_(std::move(name)) {
  for (std::size_t i = 0; i < kLaneKinds; ++i) {
    // The threads of the other lanes leave the cores to those that compute.
    const int spins = static_cast<Lane>(i) == Lane::kCaller ? hub_.spins() : 0;
    lanes_.push_back(std::make_unique<LaneState>(static_cast<int>(members_.size()), spins));
  }
}

bool ThreadGroup::contains(int world_rank) const {
  return std::ranges::find(members_, world_rank) != members_.end();
}

std::vector<int> ThreadGroup::missing(Lane which, std::int64_t seq) {
  std::vector<int> ranks;
  const auto& slots = lane(which).slots;
  for (std::size_t r = 0; r < slots.size(); ++r) {
    if (slots[r].arrived_seq.load() < seq) ranks.push_back(members_[r]);
  }
  return ranks;
}

void ThreadGroup::close() {
  for (auto& lane : lanes_) lane->arrive.close();
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void ThreadGroup::send(int rank, const Call& call) {
  const Deadline deadline = deadline_after(hub_.options().timeout_seconds);
  Message message{&call};
  std::unique_lock lock(mutex_);
  auto& queue = messages_[{call.lane, rank, call.root}];
  queue.push_back(&message);
  changed_.notify_all();
  const bool met = changed_.wait_until(lock, deadline, [&] { return message.taken || closed_; });
  if (!message.taken) {
    std::erase(queue, &message);
    lock.unlock();
    throw_unmet(call, rank, met);
  }
  changed_.wait(lock, [&] { return message.done; });  // A copy in progress always ends.
  if (!message.disagreement.empty()) {
    throw mismatch_error(members_[static_cast<std::size_t>(rank)], describe(call, name_),
                         members_[static_cast<std::size_t>(call.root)], message.disagreement);
  }
}

void ThreadGroup::throw_unmet(const Call& call, int rank, bool closed) {
  const std::vector<int> missing = {members_[static_cast<std::size_t>(call.root)]};
  if (closed) throw hub_.failure(call, *this, missing);
  const Error error = timeout_error(call, name_, missing, hub_.options().timeout_seconds);
  hub_.abort(members_[static_cast<std::size_t>(rank)], error.what());
  throw error;
}

void ThreadGroup::receive(int rank, const Call& call) {
  const Deadline deadline = deadline_after(hub_.options().timeout_seconds);
  std::unique_lock lock(mutex_);
  auto& queue = messages_[{call.lane, call.root, rank}];
  const bool met = changed_.wait_until(lock, deadline, [&] { return !queue.empty() || closed_; });
  if (queue.empty()) {
    lock.unlock();
    throw_unmet(call, rank, met);
  }
  Message& message = *queue.front();
  queue.pop_front();
  message.taken = true;
  const Call& sent = *message.call;
  const std::string sender = describe(sent, name_);
  const bool fits = sent.dtype == call.dtype && sent.in_count == call.out_count &&
                    (sent.step == call.step || hub_.options().check == CommCheck::kOff);
  if (fits) {
    lock.unlock();
    if (call.out_count > 0) std::memcpy(call.out, sent.in, static_cast<std::size_t>(sent.bytes()));
    lock.lock();
  } else {
    message.disagreement = describe(call, name_);
  }
  message.done = true;
  changed_.notify_all();
  if (!fits) {
    throw mismatch_error(members_[static_cast<std::size_t>(call.root)], sender,
                         members_[static_cast<std::size_t>(rank)], describe(call, name_));
  }
}

ThreadHub::ThreadHub(int size, const CommOptions& options)
    : size_(size),
      options_(options),
      spins_(size <= available_cores() ? 400 : 0),
      times_joined_(static_cast<std::size_t>(size)),
      finished_(static_cast<std::size_t>(size), false) {
  FF_CHECK(size >= 1, "a world of {} ranks", size);
  FF_CHECK(options.timeout_seconds > 0, "time-out of {} s", options.timeout_seconds);
}

bool ThreadHub::closed_for(const ThreadGroup& group) const {
  return failed_ || std::ranges::any_of(group.members(), [&](int r) {
           return finished_[static_cast<std::size_t>(r)];
         });
}

std::shared_ptr<ThreadGroup> ThreadHub::join(int rank, const std::vector<int>& members,
                                             const std::string& name) {
  const std::lock_guard lock(mutex_);
  const Key key{members, name};
  const int time = times_joined_[static_cast<std::size_t>(rank)][key]++;
  Open& open = open_[{key, time}];
  if (!open.group) {
    open.group = std::make_shared<ThreadGroup>(*this, members, name);
    std::erase_if(groups_, [](const auto& g) { return g.expired(); });
    groups_.push_back(open.group);
    if (closed_for(*open.group)) open.group->close();
  }
  std::shared_ptr<ThreadGroup> group = open.group;
  if (++open.joined == static_cast<int>(members.size())) open_.erase({key, time});
  return group;
}

void ThreadHub::abort(int rank, const std::string& reason) noexcept {
  const std::lock_guard lock(mutex_);
  if (!failed_) {
    failed_ = true;
    failed_rank_ = rank;
    reason_ = reason;
  }
  for (const auto& weak : groups_) {
    if (const auto group = weak.lock()) group->close();
  }
}

void ThreadHub::finish(int rank) noexcept {
  const std::lock_guard lock(mutex_);
  finished_[static_cast<std::size_t>(rank)] = true;
  for (const auto& weak : groups_) {
    if (const auto group = weak.lock(); group && group->contains(rank)) group->close();
  }
}

Error ThreadHub::failure(const Call& call, const ThreadGroup& group,
                         const std::vector<int>& missing) {
  const std::lock_guard lock(mutex_);
  if (failed_) return aborted_error(call, group.name(), failed_rank_, reason_, missing);
  std::vector<int> gone;
  for (const int r : group.members()) {
    if (finished_[static_cast<std::size_t>(r)]) gone.push_back(r);
  }
  return Error(
      ErrorKind::kCommunication,
      fmt::format("{}: {} has ended without it", describe(call, group.name()), rank_list(gone)),
      "every rank of a group calls the same operations");
}

}  // namespace fourfold
