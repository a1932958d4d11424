// One rank of the tests of comm under MPI. Its argument is what to do; what it finds it prints, in
// one write a line, and its exit code is that of the error.

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string_view>
#include <thread>

#include "comm/incident.h"
#include "comm/mpi_world.h"
#include "comm/thread_world.h"
#include "tests/threads/collective_suite.h"

namespace fourfold {
namespace {

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void reduce_some(Communicator& comm, std::int64_t count, Lane lane = Lane::kCaller) {
  std::vector<float> data(static_cast<std::size_t>(count), 1.0f);
  comm.all_reduce({data.data(), count, DType::kF32}, ReduceOp::kSum, lane).wait_host();
}

/// The suite, and the same on threads: equal checksums on every rank.
void suite(Communicator& world) {
  const SuiteOptions options{.large = true, .longest = world.size() <= 4 ? 65537 : 1000};
  const std::uint32_t mine = run_collective_suite(world, options);
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()), 1);
  std::vector<std::int64_t> all(counts.size());
  const std::int64_t wide = mine;
  world.all_gather({&wide, 1, DType::kI64}, {all.data(), world.size(), DType::kI64}, counts)
      .wait_host();
  if (world.rank() != 0) return;
  std::vector<std::int64_t> threads(all.size());
  run_thread_ranks(world.size(), {}, [&](Communicator& thread) {
    threads[static_cast<std::size_t>(thread.rank())] = run_collective_suite(thread, options);
  });
  print(fmt::format("{}: checksum of rank 0 is {:08x}\n",
                    threads == all ? "threads and MPI agree" : "threads and MPI DIFFER", mine));
}

void mismatch(Communicator& world) {
  world.set_step(Step(5));
  for (int i = 0; i < 3; ++i) reduce_some(world, 10000);
  if (world.rank() == 1) return world.barrier().wait_host();
  reduce_some(world, 10001);
}

void sizes(Communicator& world) {
  std::vector<double> data(300000);
  const std::int64_t count = 100000 + (world.rank() == 0 ? 1 : 0);
  world.broadcast({data.data(), count, DType::kF64}, 1, Lane::kGather).wait_host();
}

void absent(Communicator& world) {
  reduce_some(world, 1000);
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(30));
  reduce_some(world, 100000, Lane::kReduce);
}

void stopped(Communicator& world) {
  reduce_some(world, 1000);
  if (world.rank() == 1) kill(getpid(), SIGSTOP);
  std::vector<float> data(1000000);
  const Buffer buffer{data.data(), 1000000, DType::kF32};
  for (;;) world.all_reduce(buffer, ReduceOp::kSum).wait_host();
}

/// Rank 2 waits for rank 1, and rank 0, that has waited for longer, for rank 2.
void chain(Communicator& world) {
  if (world.rank() == 0) return reduce_some(*world.subgroup(std::array{0, 2}, "x"), 1000);
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(30));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  reduce_some(*world.subgroup(std::array{1, 2}, "y"), 1000);
}

void throws(Communicator& world) {
  reduce_some(world, 1000);
  if (world.rank() == 2) throw Error(ErrorKind::kData, "the disk is full");
  reduce_some(world, 5);
}

int run(std::string_view mode) {
  void (*action)(Communicator&) = mode == "suite"      ? suite
                                  : mode == "mismatch" ? mismatch
                                  : mode == "sizes"    ? sizes
                                  : mode == "absent"   ? absent
                                  : mode == "stopped"  ? stopped
                                  : mode == "chain"    ? chain
                                  : mode == "throws"   ? throws
                                                       : nullptr;
  if (action == nullptr) return 2;
  int rank = -1;
  try {
    run_mpi_rank({.timeout_seconds = mode == "suite" ? 60.0 : 1.0}, [&](Communicator& world) {
      rank = world.rank();
      const auto launch = mpi_launch();
      if (!launch || launch->rank != rank || launch->size != world.size()) {
        throw std::runtime_error("the environment names another rank");
      }
      try {
        action(world);
      } catch (const Error& e) {
        print(incident_report(world, e));
        throw;
      }
    });
    return 0;
  } catch (const Error& e) {
    // The others print before mpirun, which sees this exit, ends them.
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    return e.exit_code();
  } catch (const std::exception& e) {
    print(fmt::format("rank {}: {}\n", rank, e.what()));
    return 1;
  }
}

}  // namespace
}  // namespace fourfold

int main(int argc, char** argv) { return argc == 2 ? fourfold::run(argv[1]) : 2; }
