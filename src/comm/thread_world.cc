#include "comm/thread_world.h"

#include <numeric>
#include <thread>

#include "base/check.h"
#include "comm/incident.h"
#include "comm/thread_communicator.h"

namespace fourfold {
namespace {

/// The first exception of a group of threads.
class FirstException {
 public:
  /// Whether it is the first.
  bool keep(std::exception_ptr exception) {
    const std::lock_guard lock(mutex_);
    if (first_) return false;
    first_ = std::move(exception);
    return true;
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
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
  FirstException failure;
  auto run = [&](int rank) {
    try {
      const auto communicator = world.communicator(rank);
      rank_main(*communicator);
      world.finish(rank);
    } catch (...) {
      const std::exception_ptr exception = std::current_exception();
      // What comes later is most often an effect of the first failure.
      if (failure.keep(exception)) world.abort(rank, reason_of(exception));
    }
  };
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < size; ++rank) threads.emplace_back(run, rank);
  } catch (...) {  // No more threads from the system.
    if (failure.keep(std::current_exception())) {
      world.abort(-1, "the system starts no more threads");
    }
  }
  for (std::thread& thread : threads) thread.join();
  failure.rethrow();
}

}  // namespace fourfold
