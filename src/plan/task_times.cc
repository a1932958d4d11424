#include "plan/task_times.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"

namespace fourfold {
namespace {

using Kind = TimelineSpan::Kind;

struct Sum {
  TaskTime time;
  int count = 0;
};

using Key = std::pair<std::string, std::int64_t>;

/// Only collectives have sizes.
bool is_collective(const Key& task) { return task.second > 0; }

/// One rank's means.
std::map<Key, TaskTime> means_of(const std::vector<TimelineSpan>& spans) {
  std::map<Key, Sum> sums;
  double steps = 0, in_main = 0, computing = 0;
  for (const TimelineSpan& span : spans) {
    const double seconds = span.end - span.begin;
    if (span.kind == Kind::kStep) steps += seconds;
    if (span.track == kMainTrack && span.kind != Kind::kStep) in_main += seconds;
    if (span.kind == Kind::kCompute) computing += seconds;
    if (span.kind != Kind::kCompute && span.kind != Kind::kCommunicate) continue;
    Sum& sum = sums[{span.name, span.bytes}];
    sum.time.seconds += seconds;
    sum.time.cpu += span.cpu;
    ++sum.count;
  }
  if (steps == 0 || computing == 0) {
    throw Error(ErrorKind::kData, "a timeline without a whole step",
                "make one with: fourfold train FILE --trace 5");
  }
  const double between = 1 + std::max(0.0, steps - in_main) / computing;
  std::map<Key, TaskTime> means;
  for (const auto& [task, sum] : sums) {
    const double factor = is_collective(task) ? 1 : between;
    means[task] = {factor * sum.time.seconds / sum.count, sum.time.cpu / sum.count};
  }
  return means;
}

}  // namespace

TaskTimes TaskTimes::measured(const std::vector<std::vector<TimelineSpan>>& ranks) {
  TaskTimes times;
  for (const auto& spans : ranks) {
    for (const auto& [task, time] : means_of(spans)) {
      const auto [known, first] = times.times_.try_emplace(task, time);
      if (first) continue;
      if (is_collective(task)) {
        if (time.seconds < known->second.seconds) known->second = time;
      } else {
        known->second.seconds += time.seconds;
      }
    }
  }
  for (auto& [task, time] : times.times_) {
    if (!is_collective(task)) time.seconds /= static_cast<double>(ranks.size());
  }
  return times;
}

TaskTime TaskTimes::of(const StepTask& task) const {
  const auto found = times_.find(key(task.name, task.bytes));
  if (found != times_.end()) return found->second;
  throw Error(ErrorKind::kData,
              task.bytes == 0
                  ? fmt::format("no time is known of \"{}\"", task.name)
                  : fmt::format("no time is known of \"{}\" of {} bytes", task.name, task.bytes),
              "the timeline is of another model, grid or micro-batch");
}

}  // namespace fourfold
