#pragma once

#include <atomic>
#include <thread>

namespace fourfold {

/// Watches for SIGTERM, SIGINT and SIGUSR1 while it lives: the first asks for a clean stop, a
/// second ends the process at once with 128 + its number. Made in the main thread before rank
/// threads start, so that they inherit the blocked signals and none of them is interrupted.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The signal that asked to stop, 0 for none.
  int received() const { return received_.load(); }

 private:
  void watch();

  std::atomic<int> received_{0};
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace fourfold
