#include "device/intra_op_threads.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace at {
// Of ATen/Parallel.h, which costs more to include than it says.
void set_num_threads(int threads);
int get_num_threads();
}  // namespace at

namespace fourfold {

void set_intra_op_threads(int threads) { at::set_num_threads(std::max(1, threads)); }

int intra_op_threads() { return at::get_num_threads(); }

int available_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  // More cores than the set has bits for: then the machine's number is the better answer.
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int default_intra_op_threads(int ranks_on_node) {
  return std::max(1, available_cores() / std::max(1, ranks_on_node));
}

}  // namespace fourfold
