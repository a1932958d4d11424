#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/communicator.h"
#include "comm/futex.h"

namespace fourfold {

/// An operation in the queue of a lane.
class Job {
 public:
  explicit Job(std::function<void()> run) : run_(std::move(run)) {}

  void run() noexcept;
  bool done() const { return done_.load(std::memory_order_acquire) != 0; }
  void wait() const;
  /// What it threw, once done; else null.
  std::exception_ptr error() const { return error_; }

 private:
  std::function<void()> run_;
  std::exception_ptr error_;
  std::atomic<std::uint32_t> done_{0};
};

/// The threads of one rank's lanes: one each, started by the lane's first operation, which runs
/// operations in the order in which they were posted and sleeps in between. Jobs end by themselves
/// (their waits have time-outs), so the destructor, which runs what is queued, does too.
class LaneThreads {
 public:
  LaneThreads() = default;
  ~LaneThreads();
  LaneThreads(const LaneThreads&) = delete;
  LaneThreads& operator=(const LaneThreads&) = delete;

  /// `lane` is not kCaller.
  void post(Lane lane, std::shared_ptr<Job> job);

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable filled;
    std::deque<std::shared_ptr<Job>> jobs;
    bool closed = false;
    std::thread thread;
  };
  static void serve(Queue& queue);

  std::array<Queue, 4> queues_;  ///< By lane; kCaller's stays empty.
};

}  // namespace fourfold
