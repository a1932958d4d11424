#include "comm/gate.h"

namespace fourfold {

Gate::Outcome Gate::pass(SpinBudget& spins, Deadline deadline) {
  const std::uint32_t before = ticket();
  if ((before & 1u) != 0) return Outcome::kClosed;
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);  // Before it opens: the next round counts from 0.
    std::uint32_t expected = before;
    if (!word_.compare_exchange_strong(expected, before + 2)) return Outcome::kClosed;
    // A thread counts itself as a sleeper before it sleeps on the old word, so either it is seen
    // here or it sees the new word.
    if (sleepers_.load() != 0) wake_all(word_);
    return Outcome::kPassed;
  }
  std::uint32_t now = word_.load(std::memory_order_acquire);
  for (int left = spins.turns(); left > 0 && now == before; --left) {
    spin_pause();
    now = word_.load(std::memory_order_acquire);
  }
  if (now != before) {
    spins.succeeded();
  } else {
    spins.failed();
    sleepers_.fetch_add(1);
    while ((now = word_.load()) == before && std::chrono::steady_clock::now() < deadline) {
      wait_while_equal(word_, before, deadline);
    }
    sleepers_.fetch_sub(1);
  }
  if (now == before) return Outcome::kTimedOut;
  return passed_since(before) ? Outcome::kPassed : Outcome::kClosed;
}

void Gate::close() {
  word_.fetch_or(1);
  wake_all(word_);
}

}  // namespace fourfold
