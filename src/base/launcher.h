#pragma once

#include <optional>
#include <string>

namespace fourfold {

/// What a launcher of processes (mpirun, srun, ...) says about the one that it started.
struct LaunchedProcess {
  int rank = 0;  ///< Of all processes of the run.
  int size = 1;
  std::optional<int> local_rank;  ///< Among those of this machine; none where it does not say.
  std::optional<int> local_size;
  std::string launcher;  ///< "mpirun (Open MPI)", "srun", ...
};

/// Looks at the environment only, so that it may be asked before anything is initialised. None when
/// the process was started by hand (or is an sbatch script itself), and where the number of
/// processes cannot be known.
std::optional<LaunchedProcess> launched_process();

}  // namespace fourfold
