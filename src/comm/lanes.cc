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

LaneThreads::~LaneThreads() {
  for (Queue& queue : queues_) {
    if (!queue.thread.joinable()) continue;
    {
      const std::lock_guard lock(queue.mutex);
      queue.closed = true;
    }
    queue.filled.notify_one();
    queue.thread.join();
  }
}

void LaneThreads::post(Lane lane, std::shared_ptr<Job> job) {
  FF_CHECK(lane != Lane::kCaller, "the caller's lane has no thread");
  Queue& queue = queues_[static_cast<std::size_t>(lane)];
  if (!queue.thread.joinable()) queue.thread = std::thread([&queue] { serve(queue); });
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
