#pragma once

#include <atomic>
#include <cstdint>

#include "comm/futex.h"

namespace fourfold {

/// A barrier of a fixed number of threads that can be closed for good: then nobody passes any more,
/// except those whose last peer had already arrived. One that waits spins as long as it is told
/// (a switch of threads costs more than a short wait) and then sleeps.
class Gate {
 public:
  enum class Outcome { kPassed, kClosed, kTimedOut };

  explicit Gate(int threads) : threads_(static_cast<std::uint32_t>(threads)) {}
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Waits for the other threads. What a thread wrote before it arrived is seen by all that pass.
  /// After kTimedOut the thread still counts as arrived: the caller closes the gate and asks
  /// passed_since().
  Outcome pass(int spins, Deadline deadline);
  /// Whether the gate opened after `ticket` was taken from ticket().
  bool passed_since(std::uint32_t ticket) const {
    return (word_.load(std::memory_order_acquire) >> 1) != (ticket >> 1);
  }
  /// The state before the calling thread arrives.
  std::uint32_t ticket() const { return word_.load(std::memory_order_acquire); }
  void close();

 private:
  const std::uint32_t threads_;
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  /// Times opened · 2, plus 1 once closed. On a cache line of its own: others spin on it.
  alignas(64) std::atomic<std::uint32_t> word_{0};
  alignas(64) std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace fourfold
