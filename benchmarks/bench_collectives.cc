// All-reduce of fp32 on one machine: thread ranks, the MPI library's own MPI_Allreduce, and the mpi
// backend. Run by collectives.sh under mpirun; process 0 also hosts the thread ranks, while the
// others sleep. Prints medians of what rank 0 measures, in microseconds, and ratios.

#include <fmt/core.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <vector>

#include "comm/mpi_world.h"
#include "comm/thread_world.h"

namespace fourfold {
namespace {

constexpr int kRounds = 7;  ///< The three take turns, so that a slow phase of the machine hits all.

double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

int repetitions(std::int64_t bytes) {
  return static_cast<int>(std::clamp<std::int64_t>((std::int64_t{16} << 20) / bytes, 3, 200));
}

/// Appends what each of some all-reduces takes; the data stay near 1, whatever is added up.
void measure(int times, std::vector<float>& data, std::vector<double>& out,
             const std::function<void()>& all_reduce) {
  for (int i = -1; i < times; ++i) {
    std::ranges::fill(data, 1.0f);
    const double start = now_us();
    all_reduce();
    if (i >= 0) out.push_back(now_us() - start);
  }
}

void all_reduce_with(Communicator& comm, std::vector<float>& data) {
  comm.all_reduce({data.data(), static_cast<std::int64_t>(data.size()), DType::kF32},
                  ReduceOp::kSum)
      .wait_host();
}

struct Times {
  std::vector<double> threads, library, backend;
};

void measure_size(Communicator& world, std::int64_t bytes, Times& times) {
  const int n = repetitions(bytes);
  const auto count = static_cast<std::size_t>(bytes) / sizeof(float);
  std::vector<float> data(count);
  for (int round = 0; round < kRounds; ++round) {
    world.barrier().wait_host();
    measure(n, data, times.library, [&] {
      MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                    MPI_COMM_WORLD);
    });
    world.barrier().wait_host();
    measure(n, data, times.backend, [&] { all_reduce_with(world, data); });
    world.barrier().wait_host();
    if (world.rank() == 0) {
      run_thread_ranks(world.size(), {}, [&](Communicator& thread) {
        std::vector<float> own(count);
        std::vector<double> unused;
        measure(n, own, thread.rank() == 0 ? times.threads : unused,
                [&] { all_reduce_with(thread, own); });
      });
    }
  }
}

void run(Communicator& world) {
  if (world.rank() == 0) {
    fmt::print("{} ranks, {}: all-reduce of fp32, medians in us\n", world.size(), mpi_library());
    fmt::print("{:>9} {:>10} {:>13} {:>11} {:>15} {:>15}\n", "KiB", "threads", "MPI_Allreduce",
               "mpi backend", "threads/library", "backend/library");
  }
  for (std::int64_t bytes = 4 << 10; bytes <= 32 << 20; bytes *= bytes < 16 << 20 ? 4 : 2) {
    Times times;
    measure_size(world, bytes, times);
    if (world.rank() != 0) continue;
    const double threads = median(times.threads), library = median(times.library),
                 backend = median(times.backend);
    fmt::print("{:9} {:10.1f} {:13.1f} {:11.1f} {:15.3f} {:15.3f}\n", bytes >> 10, threads, library,
               backend, threads / library, backend / library);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace fourfold

int main() {
  // The others wait for as long as process 0 measures its threads.
  fourfold::run_mpi_rank({.timeout_seconds = 600}, fourfold::run);
  return EXIT_SUCCESS;
}
