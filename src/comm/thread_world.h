#pragma once

#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace fourfold {

class ThreadHub;

/// The meeting place of ranks that are threads of one process. Data go from the buffers of one rank
/// into those of another without a copy between: each rank reduces its part straight out of its
/// peers' buffers.
class ThreadWorld {
 public:
  explicit ThreadWorld(int size, const CommOptions& options = {});
  ~ThreadWorld();
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  int size() const;
  /// The world communicator of a rank, once for each; it may outlive the ThreadWorld.
  std::unique_ptr<Communicator> communicator(int rank);
  /// Ends communication for all ranks; `rank`, or -1, is named as the one that failed.
  void abort(int rank, const std::string& reason) noexcept;
  /// Says that a rank has ended well: peers that wait for it, or will, get an Error at once.
  void finish(int rank) noexcept;

 private:
  std::shared_ptr<ThreadHub> hub_;
};

/// Runs `rank_main` on `size` threads, each with its world communicator, and joins them. When one
/// throws, the others get an Error that names it from what they wait for, and the first exception
/// is thrown here when all have ended. One that has not ended options.timeout_seconds after that is
/// stuck: as a thread cannot be ended, the process then ends with the failure's exit code.
void run_thread_ranks(int size, const CommOptions& options,
                      const std::function<void(Communicator&)>& rank_main);

}  // namespace fourfold
