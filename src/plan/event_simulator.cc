#include "plan/event_simulator.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace fourfold {
namespace {

using Kind = TimelineSpan::Kind;

/// Computation goes on at this rate at least, however much its core has to communicate.
constexpr double kLeastRate = 0.05;

class Simulator {
 public:
  Simulator(const StepProgram& program, const TaskTimes& times)
      : program_(program),
        times_(times),
        ends_(static_cast<std::size_t>(program.collectives), 0.0) {}

  SimulatedRun run() {
    SimulatedRun result;
    double began = 0;
    std::size_t step = 0;
    for (std::size_t i = 0; i < program_.tasks.size(); ++i) {
      if (step < program_.begins.size() && program_.begins[step] == i) {
        ++step;
        began = now_;
      }
      take(program_.tasks[i]);
    }
    result.step = {std::string(kMainTrack), "step", Kind::kStep, began, now_};
    spans_.push_back(result.step);
    result.spans = std::move(spans_);
    return result;
  }

 private:
  /// A collective in a lane, and the part of a core that it takes.
  struct Running {
    double begin, end, load;
  };

  void take(const StepTask& task) {
    switch (task.kind) {
      case StepTask::Kind::kCompute:
        add(task, kMainTrack, Kind::kCompute, now_, end_of_work(times_.of(task).seconds));
        now_ = spans_.back().end;
        break;
      case StepTask::Kind::kCollective:
        start(task);
        break;
      case StepTask::Kind::kWait: {
        const double end = ends_[static_cast<std::size_t>(task.collective)];
        if (end <= now_) break;
        add(task, kMainTrack, Kind::kWait, now_, end);
        now_ = end;
        break;
      }
    }
  }

  void start(const StepTask& task) {
    const TaskTime time = times_.of(task);
    if (task.lane == TaskLane::kCaller) {
      add(task, kMainTrack, Kind::kCommunicate, now_, now_ + time.seconds);
      now_ += time.seconds;
      return;
    }
    const std::string track = std::string(task_lane_name(task.lane)) + " " + task.group;
    double& free = lane_free_[track];
    const double begin = std::max(free, now_);
    free = begin + time.seconds;
    ends_[static_cast<std::size_t>(task.collective)] = free;
    add(task, track, Kind::kCommunicate, begin, free);
    if (time.seconds > 0) running_.push_back({begin, free, time.cpu / time.seconds});
  }

  /// When computation of `seconds` that begins now is over, beside what the lanes take.
  double end_of_work(double seconds) {
    std::erase_if(running_, [&](const Running& r) { return r.end <= now_; });
    double at = now_;
    while (true) {
      // The rate is the same until the next collective begins or ends.
      double load = 0, next = -1;
      for (const Running& r : running_) {
        if (r.begin <= at && at < r.end) load += r.load;
        for (const double edge : {r.begin, r.end}) {
          if (edge > at && (next < 0 || edge < next)) next = edge;
        }
      }
      const double rate = std::max(kLeastRate, 1 - load);
      if (next < 0 || at + seconds / rate <= next) return at + seconds / rate;
      seconds -= (next - at) * rate;
      at = next;
    }
  }

  void add(const StepTask& task, std::string_view track, Kind kind, double begin, double end) {
    const std::string& name =
        task.kind == StepTask::Kind::kWait ? name_of(task.collective) : task.name;
    if (task.kind == StepTask::Kind::kCollective) names_[task.collective] = &task.name;
    spans_.push_back({std::string(track), name, kind, begin, end, task.bytes});
  }
  const std::string& name_of(int collective) const { return *names_.at(collective); }

  const StepProgram& program_;
  const TaskTimes& times_;
  double now_ = 0;
  std::vector<double> ends_;  ///< Of the collectives in lanes.
  std::map<int, const std::string*> names_;
  std::map<std::string, double> lane_free_;  ///< When, by track.
  std::vector<Running> running_;
  std::vector<TimelineSpan> spans_;
};

}  // namespace

double serial_seconds(const StepProgram& program, const TaskTimes& times) {
  double seconds = 0;
  for (std::size_t i = program.begins.back(); i < program.tasks.size(); ++i) {
    if (program.tasks[i].kind != StepTask::Kind::kWait)
      seconds += times.of(program.tasks[i]).seconds;
  }
  return seconds;
}

SimulatedRun simulate(const StepProgram& program, const TaskTimes& times) {
  return Simulator(program, times).run();
}

}  // namespace fourfold
