#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "comm/futex.h"

namespace fourfold {

/// How long one thread spins at one gate before it sleeps. Spinning pays where the peers run on
/// other cores and come soon, and is worse than nothing where they need this core: so a wait that
/// spins in vain halves the next spin, one that succeeds doubles it, and now and then it is tried
/// anyway.
class SpinBudget {
 public:
  /// `most` 0 never spins.
  explicit SpinBudget(int most) : most_(most), turns_(most) {}

  int turns() { return ++waits_ % kTryEvery == 0 ? most_ : turns_; }
  void succeeded() { turns_ = std::min(most_, std::max(kLeast, 2 * turns_)); }
  void failed() { turns_ /= 2; }

 private:
  static constexpr unsigned kTryEvery = 16;
  static constexpr int kLeast = 25;
  int most_, turns_;
  unsigned waits_ = 0;
};

/// A barrier of a fixed number of threads that can be closed for good: then nobody passes any more,
/// except those whose last peer had already arrived. One that waits spins within its budget (a
/// switch of threads costs more than a short wait) and then sleeps.
class Gate {
 public:
  enum class Outcome { kPassed, kClosed, kTimedOut };

  explicit Gate(int threads) : threads_(static_cast<std::uint32_t>(threads)) {}
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Waits for the other threads. What a thread wrote before it arrived is seen by all that pass.
  /// After kTimedOut the thread still counts as arrived: the caller closes the gate and asks
  /// passed_since().
  Outcome pass(SpinBudget& spins, Deadline deadline);
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
