#include "base/launcher.h"

#include <charconv>
#include <climits>

#include "base/env.h"

namespace fourfold {
namespace {

struct Launcher {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* name;
};

// SLURM_STEP_NUM_TASKS is set by srun alone, not in the batch script itself.
constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun (Open MPI)"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "srun"},
    {"PALS_RANKID", "PALS_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", "PALS"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "mpiexec"},
};

std::optional<int> count_of(const char* name) {
  const auto value = env_int(name);
  if (!value || *value < 0 || *value > INT_MAX) return std::nullopt;
  return static_cast<int>(*value);
}

/// Slurm's list of tasks by node, "4(x2),3" for 4, 4 and 3: that of node `node`.
std::optional<int> tasks_of_node(const std::string& list, long node) {
  const char* p = list.data();
  const char* const end = p + list.size();
  while (p != end) {
    int tasks = 0, nodes = 1;
    auto read = std::from_chars(p, end, tasks);
    if (read.ec != std::errc()) return std::nullopt;
    p = read.ptr;
    if (end - p > 2 && p[0] == '(' && p[1] == 'x') {
      read = std::from_chars(p + 2, end, nodes);
      if (read.ec != std::errc() || read.ptr == end) return std::nullopt;
      p = read.ptr + 1;  // Behind the bracket.
    }
    if (node < nodes) return tasks;
    node -= nodes;
    if (p != end) ++p;  // The comma.
  }
  return std::nullopt;
}

}  // namespace

std::optional<LaunchedProcess> launched_process() {
  for (const Launcher& l : kLaunchers) {
    const auto rank = count_of(l.rank), size = count_of(l.size);
    if (!rank || !size || *rank >= *size) continue;
    LaunchedProcess process{*rank, *size, count_of(l.local_rank), count_of(l.local_size), l.name};
    const auto by_node = env("SLURM_STEP_TASKS_PER_NODE");
    const auto node = env_int("SLURM_NODEID");
    if (process.launcher == "srun" && by_node && node) {
      const auto tasks = tasks_of_node(*by_node, *node);
      if (tasks) process.local_size = tasks;
    }
    return process;
  }
  return std::nullopt;
}

}  // namespace fourfold
