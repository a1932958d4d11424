#include "base/env.h"
#include "comm/incident.h"
#include "comm/mpi_world.h"

namespace fourfold {

std::optional<MpiLaunch> mpi_launch() {
  struct Launcher {
    const char* rank;
    const char* size;
    const char* name;
  };
  // SLURM_STEP_NUM_TASKS is set by srun alone, not in the batch script itself.
  constexpr Launcher kLaunchers[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "mpirun (Open MPI)"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun"},
      {"PMI_RANK", "PMI_SIZE", "mpiexec"},
      {"PALS_RANKID", "PALS_SIZE", "PALS"},
  };
  for (const Launcher& l : kLaunchers) {
    const auto rank = env_int(l.rank), size = env_int(l.size);
    if (!rank || !size || *rank < 0 || *rank >= *size) continue;
    return MpiLaunch{static_cast<int>(*rank), static_cast<int>(*size), l.name};
  }
  return std::nullopt;
}

void run_mpi_rank(const CommOptions& options, const std::function<void(Communicator&)>& rank_main) {
  const auto world = make_mpi_world(options);
  try {
    rank_main(*world);
  } catch (...) {
    world->abort(reason_of(std::current_exception()));
    throw;
  }
}

}  // namespace fourfold
