#include "train/launch.h"

#include <c10/core/InferenceMode.h>
#include <fmt/core.h>

#include "comm/emulated_network.h"
#include "comm/mpi_world.h"
#include "comm/thread_world.h"
#include "device/intra_op_threads.h"
#include "plan/recompute_choice.h"
#include "spec/machine_spec.h"
#include "spec/run_config.h"

namespace fourfold {

Launch find_launch(const CommSpec& comm) {
  const std::optional<MpiLaunch> launched = mpi_launch();
  if (comm.backend == "threads" || (comm.backend == "auto" && !launched)) return {};
  if (!mpi_available()) {
    throw Error(ErrorKind::kUsage,
                launched ? fmt::format("started by {}, but fourfold was built without MPI",
                                       launched->launcher)
                         : "comm.backend = \"mpi\", but fourfold was built without MPI",
                "install an MPI (libopenmpi-dev) and build again, or use thread ranks");
  }
  const MpiLaunch here = launched.value_or(MpiLaunch{});
  return {true, here.size, here.ranks_on_node, here.rank == 0};
}

Launch choose_launch(RunSpec& run, int requested) {
  Launch launch = find_launch(run.comm);
  if (launch.mpi) {
    if (requested > 0 && requested != launch.ranks) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("--ranks {}, but the launcher started {}", requested, launch.ranks),
                  "leave --ranks out under mpirun and srun");
    }
    resolve_grid(run, launch.ranks).value();
    resolve_recompute(run);
    return launch;
  }
  const int ranks =
      requested == 0 && grid_is_open(run.parallel.grid) ? available_cores() : requested;
  resolve_grid(run, ranks).value();
  resolve_recompute(run);
  launch.ranks = launch.ranks_on_node = run.parallel.grid.size();
  return launch;
}

int ranks_on_node(const RunSpec& run, const Launch& launch) {
  if (!run.machine_file.empty()) return load_machine(run.machine_file).value().devices;
  return launch.mpi ? launch.ranks_on_node : 0;
}

void run_ranks(const Launch& launch, const CommOptions& options,
               const std::function<void(Communicator&)>& rank_main) {
  const int threads = default_intra_op_threads(launch.ranks_on_node);
  set_intra_op_threads(threads);
  const auto prepared = [&](Communicator& world) {
    set_intra_op_threads(threads);
    const c10::InferenceMode no_autograd;
    rank_main(world);
  };
  if (launch.mpi) {
    run_mpi_rank(options, prepared);
  } else {
    run_thread_ranks(launch.ranks, options, prepared);
  }
}

CommOptions comm_options(const RunSpec& run) {
  CommOptions options;
  options.timeout_seconds = run.comm.timeout_seconds;
  options.check = run.comm.check ? CommCheck::kOn : CommCheck::kOff;
  if (run.machine_file.empty()) {
    if (!run.comm.emulate) return options;
    throw Error(ErrorKind::kUsage, "comm.emulate is set, but machine.file is not given",
                "configs/machines/ has examples");
  }
  const MachineSpec machine = load_machine(run.machine_file).value();
  if (!run.comm.emulate) return options;
  auto link = [](const MachineSpec::Link& l) {
    return EmulatedNetwork::Link{l.bandwidth, l.latency};
  };
  options.network = std::make_shared<EmulatedNetwork>(
      EmulatedNetwork{machine.devices, link(machine.inside), link(machine.between)});
  return options;
}

}  // namespace fourfold
