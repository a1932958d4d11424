#include "base/launcher.h"
#include "comm/incident.h"
#include "comm/mpi_world.h"

namespace fourfold {

std::optional<MpiLaunch> mpi_launch() {
  const auto process = launched_process();
  if (!process) return std::nullopt;
  return MpiLaunch{process->rank, process->size, process->local_size.value_or(process->size),
                   process->launcher};
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
