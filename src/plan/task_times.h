#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/timeline.h"
#include "policy/step_program.h"

namespace fourfold {

/// How long a task takes.
struct TaskTime {
  double seconds = 0;
  double cpu = 0;  ///< Of a collective: seconds of a core, which its lane takes from computation.
};

/// Times of a program's tasks by their names, those of collectives by their sizes too.
class TaskTimes {
 public:
  /// Of the timelines of all ranks of a run: means over their steps; of a collective that of the
  /// rank which waits least for the others. What a main thread did between its tasks is charged to
  /// computation, in proportion. Throws Error (kData) for a timeline without a whole step.
  static TaskTimes measured(const std::vector<std::vector<TimelineSpan>>& ranks);

  void set(const StepTask& task, TaskTime time) { times_[key(task.name, task.bytes)] = time; }
  /// Throws Error (kData) where it is not known.
  TaskTime of(const StepTask& task) const;

 private:
  using Key = std::pair<std::string, std::int64_t>;
  static Key key(const std::string& name, std::int64_t bytes) { return {name, bytes}; }

  std::map<Key, TaskTime> times_;
};

}  // namespace fourfold
