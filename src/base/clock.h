#pragma once

#include <chrono>
#include <ctime>

namespace fourfold {

/// The seam to time: tests pass their own.
class Clock {
 public:
  virtual ~Clock() = default;
  /// Seconds of a clock that never goes back.
  virtual double seconds() const = 0;
};

class SteadyClock final : public Clock {
 public:
  double seconds() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

/// CPU time that the calling thread has used.
inline double thread_cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace fourfold
