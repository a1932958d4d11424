#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

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

/// Lanes by number, the same on all ranks of a group: kCaller's is 0 for all groups, the others are
/// from 1 to kChannels - 1. Two groups whose names get one number by chance share their lanes:
/// then their operations wait for each other, and their sends and receives go by the order that
/// one lane needs. MPI tells messages apart by them, and promises 2^15 tags.
inline constexpr int kGroupChannels = 8192;
inline constexpr int kChannels = 1 + (static_cast<int>(kLaneKinds) - 1) * kGroupChannels;
/// In [0, kGroupChannels).
int group_channel(std::string_view group_name);
int channel_of(Lane lane, int group_channel);

/// The threads of one rank's lanes: one each, started by the lane's first operation, which runs
/// operations in the order in which they were posted and sleeps in between. Once a kind
/// has kMostThreads of them, further groups share those: program order, which is that of all ranks,
/// keeps this free of deadlock. Jobs end by themselves (their waits have time-outs), so the
/// destructor, which runs what is queued, does too.
class LaneThreads {
 public:
  LaneThreads() = default;
  ~LaneThreads();
  LaneThreads(const LaneThreads&) = delete;
  LaneThreads& operator=(const LaneThreads&) = delete;

  /// Of one kind: more than a grid has groups along its axes and their products in use.
  static constexpr std::size_t kMostThreads = 16;

  /// `channel` is not kCaller's. Called by one thread.
  void post(int channel, std::shared_ptr<Job> job);

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable filled;
    std::deque<std::shared_ptr<Job>> jobs;
    bool closed = false;
    std::thread thread;
  };
  static void serve(Queue& queue);
  Queue& queue_of(int channel);

  /// By kind without kCaller.
  std::array<std::vector<std::unique_ptr<Queue>>, kLaneKinds - 1> queues_;
  std::map<int, Queue*> by_channel_;
};

}  // namespace fourfold
