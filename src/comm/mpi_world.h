#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/communicator.h"

namespace fourfold {

/// Whether MPI was compiled in.
bool mpi_available();
/// "Open MPI v4.1.4 ..."; empty when it was not compiled in.
std::string mpi_library();

/// How a launcher of processes started this one.
struct MpiLaunch {
  int rank = 0;
  int size = 1;
  int ranks_on_node = 1;  ///< Of this machine; all where the launcher does not say.
  std::string launcher;   ///< "mpirun (Open MPI)", "srun", ...
};
/// Looks at the environment only, so that it may be asked before anything is initialised; none when
/// the process was started by hand (or is an sbatch script itself).
std::optional<MpiLaunch> mpi_launch();

/// The world communicator of this process under MPI, one at a time; initialises MPI and, unless
/// somebody else had, finalises it when the last communicator made from it is gone. It belongs to
/// the thread that made it. After an Error (of this rank or told by another) the process ends
/// without finalising, because that would wait for the others; buffers of the failed operation may
/// be read or written until then. Throws Error: kUsage when MPI was not compiled in, kCommunication
/// when it cannot be used.
std::unique_ptr<Communicator> make_mpi_world(const CommOptions& options = {});

/// Runs `rank_main` with the world communicator. When it throws, the other ranks are told and the
/// exception is thrown on.
void run_mpi_rank(const CommOptions& options, const std::function<void(Communicator&)>& rank_main);

}  // namespace fourfold
