#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <new>

#include "base/env.h"
#include "base/error.h"

namespace fourfold::cli {

/// Rank of this process as mpirun or srun say it before MPI is started; 0 without them.
inline long launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const auto rank = env_int(name)) return *rank;
  }
  return 0;
}

/// Prints "error:" and "hint:" to stderr and gives the exit code. Every rank finds the same mistake
/// in command line and configuration, so rank 0 alone tells it.
inline int report(const Error& error) {
  if (error.kind() == ErrorKind::kUsage && launched_rank() != 0) return error.exit_code();
  std::fflush(stdout);
  fmt::print(stderr, "error: {}\n", error.what());
  if (!error.hint().empty()) fmt::print(stderr, "hint: {}\n", error.hint());
  return error.exit_code();
}

/// Runs a command; what it throws is reported and becomes the exit code.
template <class Command>
int guarded(const Command& command) {
  try {
    return command();
  } catch (const Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    return report(Error(ErrorKind::kInternal, "out of memory",
                        "a smaller model, batch or sequence; `train --dry-run` shows the need"));
  } catch (const std::exception& error) {
    return report(Error(ErrorKind::kInternal, error.what()));
  }
}

}  // namespace fourfold::cli
