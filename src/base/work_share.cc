#include "base/work_share.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace fourfold {

void WorkShare::run(std::size_t pieces, const std::function<void(std::size_t)>& piece) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < pieces; i = next++) piece(i);
  };
  const std::size_t threads = std::min(pieces, static_cast<std::size_t>(std::max(threads_, 1)));
  std::vector<double> cpu_seconds(threads, 0.0);
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i) {
      try {
        others.emplace_back([&work, &used = cpu_seconds[i]] {
          work();
          used = thread_cpu_seconds();
        });
      } catch (const std::system_error&) {
        break;  // The threads that there are do it all.
      }
    }
    work();
  }
  for (const double used : cpu_seconds) others_cpu_seconds_ += used;
}

}  // namespace fourfold
