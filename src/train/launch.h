#pragma once

#include <functional>

#include "comm/communicator.h"
#include "spec/run_spec.h"

namespace fourfold {

/// How the ranks of this command exist.
struct Launch {
  bool mpi = false;  ///< This process is one rank of mpirun or srun; else ranks are threads of it.
  int ranks = 1;     ///< Of the whole run.
  int ranks_on_node = 1;
  /// Whether this process speaks for the run: it holds rank 0.
  bool speaks = true;
};

/// Whether this process is a rank of mpirun or srun, by comm.backend and the environment. For
/// thread ranks the number is left at 1. Throws Error of kind kUsage.
Launch find_launch(const CommSpec& comm);

/// Chooses by comm.backend, the environment and the grid, and fills an open axis of the grid:
/// `requested` ranks, else those of mpirun or srun, else what the grid says, else the cores.
/// Throws Error of kind kUsage.
Launch choose_launch(RunSpec& run, int requested);

/// Neighbouring world ranks that share a node: by machine.file, else by mpirun or srun; 0 where all
/// do. Throws Error of kind kUsage.
int ranks_on_node(const RunSpec& run, const Launch& launch);

/// Calls `rank_main` for each rank that this process holds, on a thread of its own, with its world
/// communicator and its intra-op threads set, and waits for all. Throws what the first failing rank
/// threw.
void run_ranks(const Launch& launch, const CommOptions& options,
               const std::function<void(Communicator&)>& rank_main);

/// Reads machine.file where it is given. Throws Error of kind kUsage.
CommOptions comm_options(const RunSpec& run);

}  // namespace fourfold
