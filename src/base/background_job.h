#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"

namespace fourfold {

/// Work in a thread of its own, from construction on. What it throws is kept as its error, as is
/// that no thread can be had. The destructor waits for its end.
class BackgroundJob {
 public:
  explicit BackgroundJob(std::function<void()> work);
  BackgroundJob(const BackgroundJob&) = delete;
  BackgroundJob& operator=(const BackgroundJob&) = delete;
  ~BackgroundJob();

  /// Whether the work has ended, after waiting for it at most that long. Any thread may ask.
  bool ended_within(std::chrono::milliseconds time);
  void wait();

  /// What the work threw, once it has ended: waits for that.
  std::optional<Error> error();
  /// CPU time of the work, once it has ended.
  double cpu_seconds();

 private:
  void run() noexcept;

  std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable ended_now_;
  bool ended_ = false;
  std::optional<Error> error_;
  double cpu_seconds_ = 0;
  std::thread thread_;  // Last: it uses the members above.
};

}  // namespace fourfold
