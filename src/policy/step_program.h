#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spec/run_spec.h"

namespace fourfold {

/// In which of a rank's queues a collective runs: kCaller is the main thread itself, the others run
/// behind it, each in the order of the calls.
enum class TaskLane : std::uint8_t { kCaller, kGather, kScatter, kReduce };

std::string_view task_lane_name(TaskLane lane);

/// One thing that a rank's main thread does.
struct StepTask {
  enum class Kind : std::uint8_t { kCompute, kCollective, kWait };
  Kind kind = Kind::kCompute;
  std::string name;   ///< As in timelines: "dW model.layers.0.mlp.up_proj.weight".
  std::string group;  ///< Of a collective: "x", "z·data".
  TaskLane lane = TaskLane::kCaller;
  std::int64_t bytes = 0;  ///< Of a collective: the larger of what goes in and what comes out.
  int collective = -1;     ///< Its number in the program; of a wait: which one it waits for.
};

/// What every rank does in training steps, as one line of tasks: the collectives, in which lane
/// each is started, and where it is waited for. The runtime's passes are the same text
/// (model/transformer.h, parallel/overlap_scheduler.h); timelines of real steps show the same tasks
/// in the same order.
struct StepProgram {
  std::vector<StepTask> tasks;
  std::vector<std::size_t> begins;  ///< Of each step: its first task.
  int collectives = 0;
};

/// Of `steps` steps, of which the first meets no weights that are still on their way from an
/// update. Sizes are those of the rank at (0, 0, 0, 0). Throws Error (kUsage) for models with
/// experts, whose exchange depends on the tokens.
StepProgram step_program(const RunSpec& run, int steps = 2);

}  // namespace fourfold
