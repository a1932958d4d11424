#include "comm/thread_world.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "comm/incident.h"
#include "comm/thread_communicator.h"

namespace fourfold {
namespace {

/// What the starter of a group of threads knows of them.
class RankThreads {
 public:
  explicit RankThreads(int size) : running_(static_cast<std::size_t>(size), true) {}

  /// Whether the exception is the first.
  bool keep(std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    if (first_) return false;
    first_ = std::move(exception);
    changed_.notify_all();
    return true;
  }
  void ended(int rank) {
    const std::lock_guard lock(mutex_);
    running_[static_cast<std::size_t>(rank)] = false;
    changed_.notify_all();
  }
  /// Waits for all to end; once one has failed, for so many seconds more. Returns those that still
  /// run then.
  std::vector<int> wait(double seconds_after_failure) {
    std::unique_lock lock(mutex_);
    auto none_runs = [&] { return still_running().empty(); };
    changed_.wait(lock, [&] { return first_ || none_runs(); });
    changed_.wait_for(lock, std::chrono::duration<double>(seconds_after_failure), none_runs);
    return still_running();
  }
  std::exception_ptr first() const { return first_; }

 private:
  std::vector<int> still_running() const {
    std::vector<int> ranks;
    for (std::size_t r = 0; r < running_.size(); ++r) {
      if (running_[r]) ranks.push_back(static_cast<int>(r));
    }
    return ranks;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> running_;
  std::exception_ptr first_;
};

}  // namespace

ThreadWorld::ThreadWorld(int size, const CommOptions& options)
    : hub_(std::make_shared<ThreadHub>(size, options)) {}

ThreadWorld::~ThreadWorld() = default;

int ThreadWorld::size() const { return hub_->size(); }

std::unique_ptr<Communicator> ThreadWorld::communicator(int rank) {
  FF_CHECK(rank >= 0 && rank < size(), "rank {} of {}", rank, size());
  std::vector<int> members(static_cast<std::size_t>(size()));
  std::iota(members.begin(), members.end(), 0);
  return std::make_unique<ThreadCommunicator>(rank, std::move(members), "world", hub_,
                                              std::make_shared<RankContext>(rank, hub_->options()));
}

void ThreadWorld::abort(int rank, const std::string& reason) noexcept { hub_->abort(rank, reason); }

void ThreadWorld::finish(int rank) noexcept { hub_->finish(rank); }

void run_thread_ranks(int size, const CommOptions& options,
                      const std::function<void(Communicator&)>& rank_main) {
  ThreadWorld world(size, options);
  RankThreads started(size);
  auto run = [&](int rank) {
    try {
      const auto communicator = world.communicator(rank);
      rank_main(*communicator);
      world.finish(rank);
    } catch (...) {
      const std::exception_ptr exception = std::current_exception();
      // What comes later is most often an effect of the first failure.
      if (started.keep(exception)) world.abort(rank, reason_of(exception));
    }
    started.ended(rank);
  };
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  } catch (...) {  // No more threads from the system.
    if (started.keep(std::current_exception())) {
      world.abort(-1, "the system starts no more threads");
    }
    for (int rank = static_cast<int>(threads.size()); rank < size; ++rank) started.ended(rank);
  }
  const std::vector<int> stuck = started.wait(options.timeout_seconds);
  if (!stuck.empty()) {
    end_process(started.first(), fmt::format("rank {} does not end", fmt::join(stuck, ", ")));
  }
  for (std::thread& thread : threads) thread.join();
  if (started.first()) std::rethrow_exception(started.first());
}

}  // namespace fourfold
