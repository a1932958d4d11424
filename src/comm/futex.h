#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace fourfold {

using Deadline = std::chrono::steady_clock::time_point;

/// A deadline of `seconds` from now; of a huge number, one that never comes.
Deadline deadline_after(double seconds);

/// Sleeps while `word` is `value`, until woken or the deadline; may return early. std::atomic::wait
/// with a time limit.
void wait_while_equal(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                      Deadline deadline);
void wake_all(const std::atomic<std::uint32_t>& word);

/// Tells the core that the thread spins.
inline void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace fourfold
