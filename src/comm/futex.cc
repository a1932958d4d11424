#include "comm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

namespace fourfold {

Deadline deadline_after(double seconds) {
  constexpr double kForever = 1e9;
  return std::chrono::steady_clock::now() +
         std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(seconds, kForever) * 1e9));
}

void wait_while_equal(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                      Deadline deadline) {
  using namespace std::chrono;
  const auto left = duration_cast<nanoseconds>(deadline - steady_clock::now()).count();
  if (left <= 0) return;
  const timespec time{static_cast<time_t>(left / 1'000'000'000),
                      static_cast<long>(left % 1'000'000'000)};
  static_assert(sizeof(word) == sizeof(std::uint32_t));
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, &time, nullptr, 0);
}

void wake_all(const std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace fourfold
