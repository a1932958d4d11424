#include "comm/lanes.h"

#include "base/check.h"

namespace fourfold {

void Job::run() noexcept {
  try {
    run_();
  } catch (...) {
    error_ = std::current_exception();
  }
  done_.store(1, std::memory_order_release);
  wake_all(done_);
}

void Job::wait() const {
  while (!done()) wait_while_equal(done_, 0, deadline_after(1e9));
}

int group_channel(std::string_view group_name) {
  std::uint32_t hash = 0x811c9dc5u;  // FNV-1a.
  for (const char c : group_name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return static_cast<int>((hash ^ hash >> 16) % kGroupChannels);
}

int channel_of(Lane lane, int group_channel) {
  return lane == Lane::kCaller ? 0
                               : 1 + (static_cast<int>(lane) - 1) * kGroupChannels + group_channel;
}

LaneThreads::~LaneThreads() {
  for (const auto& kind : queues_) {
    for (const auto& queue : kind) {
      {
        const std::lock_guard lock(queue->mutex);
        queue->closed = true;
      }
      queue->filled.notify_one();
      queue->thread.join();
    }
  }
}

LaneThreads::Queue& LaneThreads::queue_of(int channel) {
  const auto known = by_channel_.find(channel);
  if (known != by_channel_.end()) return *known->second;
  auto& kind = queues_[static_cast<std::size_t>((channel - 1) / kGroupChannels)];
  if (kind.size() < kMostThreads) {
    auto queue = std::make_unique<Queue>();
    kind.reserve(kMostThreads);
    queue->thread = std::thread([&q = *queue] { serve(q); });
    kind.push_back(std::move(queue));
    return *(by_channel_[channel] = kind.back().get());
  }
  return *(by_channel_[channel] = kind[by_channel_.size() % kMostThreads].get());
}

void LaneThreads::post(int channel, std::shared_ptr<Job> job) {
  FF_CHECK(channel > 0 && channel < kChannels, "lane {} has no thread", channel);
  Queue& queue = queue_of(channel);
  {
    const std::lock_guard lock(queue.mutex);
    queue.jobs.push_back(std::move(job));
  }
  queue.filled.notify_one();
}

void LaneThreads::serve(Queue& queue) {
  std::unique_lock lock(queue.mutex);
  for (;;) {
    queue.filled.wait(lock, [&] { return queue.closed || !queue.jobs.empty(); });
    if (queue.jobs.empty()) return;
    const std::shared_ptr<Job> job = std::move(queue.jobs.front());
    queue.jobs.pop_front();
    lock.unlock();
    job->run();
    lock.lock();
  }
}

}  // namespace fourfold
