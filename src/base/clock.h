#pragma once

#include <chrono>

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

}  // namespace fourfold
