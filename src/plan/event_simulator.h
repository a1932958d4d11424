#pragma once

#include <vector>

#include "base/timeline.h"
#include "plan/task_times.h"
#include "policy/step_program.h"

namespace fourfold {

/// When a program's tasks run on a machine: the main thread takes its tasks in order; each lane of
/// each group runs its collectives in the order of their start, all ranks alike. A collective that
/// runs beside computation takes its CPU seconds from it.
struct SimulatedRun {
  std::vector<TimelineSpan> spans;  ///< As a real run would record them, from 0 on.
  /// Of the last step: from the end of the one before it.
  TimelineSpan step;
};

/// Seconds of the last step's tasks one after the other.
double serial_seconds(const StepProgram& program, const TaskTimes& times);

SimulatedRun simulate(const StepProgram& program, const TaskTimes& times);

}  // namespace fourfold
