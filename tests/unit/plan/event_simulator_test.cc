// Programs of a few tasks, whose times are counted by hand.
#include "plan/event_simulator.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace fourfold {
namespace {

using Kind = StepTask::Kind;

/// Programs and their times together.
class Written {
 public:
  Written() { program.begins.push_back(0); }
  void compute(const char* name, double seconds) {
    StepTask task;
    task.name = name;
    add(task, {seconds, 0});
  }
  int collective(const char* name, TaskLane lane, double seconds, double cpu = 0) {
    StepTask task{Kind::kCollective, name, "x", lane, 8, program.collectives++};
    add(task, {seconds, cpu});
    return task.collective;
  }
  void wait(int collective) {
    StepTask task;
    task.kind = Kind::kWait;
    task.collective = collective;
    program.tasks.push_back(task);
  }
  double seconds() const {
    const SimulatedRun run = simulate(program, times);
    return run.step.end - run.step.begin;
  }

  StepProgram program;
  TaskTimes times;

 private:
  void add(const StepTask& task, TaskTime time) {
    program.tasks.push_back(task);
    times.set(task, time);
  }
};

TEST(EventSimulator, ACollectiveRunsBehindComputation) {
  Written w;
  const int sum = w.collective("all_reduce x", TaskLane::kReduce, 3);
  w.compute("dW", 2);
  w.wait(sum);
  w.compute("rest", 1);
  EXPECT_DOUBLE_EQ(w.seconds(), 4);
  EXPECT_DOUBLE_EQ(serial_seconds(w.program, w.times), 6);
}

TEST(EventSimulator, TheCallersCollectiveStopsIt) {
  Written w;
  w.collective("all_reduce x", TaskLane::kCaller, 3);
  w.compute("dW", 2);
  EXPECT_DOUBLE_EQ(w.seconds(), 5);
}

TEST(EventSimulator, ALaneKeepsItsOrderAndLanesRunSideBySide) {
  Written w;
  w.collective("first", TaskLane::kGather, 2);
  const int second = w.collective("second", TaskLane::kGather, 2);
  const int other = w.collective("other", TaskLane::kReduce, 3);
  w.wait(other);
  w.compute("after other", 0.25);
  w.wait(second);
  EXPECT_DOUBLE_EQ(w.seconds(), 4);
}

TEST(EventSimulator, WhatACollectiveComputesIsTakenFromComputation) {
  Written w;
  // Half a core for two seconds: in them one second of work is done, the other two follow.
  w.collective("all_reduce x", TaskLane::kReduce, 2, 1);
  w.compute("dW", 3);
  EXPECT_DOUBLE_EQ(w.seconds(), 4);
}

TEST(EventSimulator, TheLastStepBeginsWhereTheOneBeforeItEnded) {
  Written w;
  w.compute("step", 5);
  const int gather = w.collective("all_gather data", TaskLane::kGather, 3);
  w.program.begins.push_back(w.program.tasks.size());
  w.compute("next", 1);
  w.wait(gather);
  EXPECT_DOUBLE_EQ(w.seconds(), 3);
  EXPECT_DOUBLE_EQ(serial_seconds(w.program, w.times), 1);
}

TimelineSpan span(const char* track, const char* name, TimelineSpan::Kind k, double begin,
                  double end, std::int64_t bytes = 0) {
  return {track, name, k, begin, end, bytes, 0.25 * (end - begin)};
}

TEST(TaskTimes, AreMeansWithTheTimeBetweenTasks) {
  using K = TimelineSpan::Kind;
  // Ten seconds, of which six were tasks: a computation of 2 and 2, and a collective of 2.
  const std::vector<TimelineSpan> one{span("main", "dW", K::kCompute, 0, 1),
                                      span("main", "dW", K::kCompute, 4, 7),
                                      span("main", "all_reduce x", K::kCommunicate, 7, 9, 8),
                                      span("main", "step 1", K::kStep, 0, 10)};
  // The other rank came later to the collective.
  std::vector<TimelineSpan> two = one;
  two[2].end = 8;
  two[2].cpu = 0.5;
  const TaskTimes times = TaskTimes::measured({one, two});
  StepTask dw;
  dw.name = "dW";
  EXPECT_DOUBLE_EQ(times.of(dw).seconds, (2 * (1 + 4.0 / 4) + 2 * (1 + 5.0 / 4)) / 2);
  StepTask sum{Kind::kCollective, "all_reduce x", "x", TaskLane::kReduce, 8, 0};
  EXPECT_DOUBLE_EQ(times.of(sum).seconds, 1);
  EXPECT_DOUBLE_EQ(times.of(sum).cpu, 0.5);
  sum.bytes = 16;
  EXPECT_THROW(times.of(sum), Error);
  EXPECT_THROW(TaskTimes::measured({{one[0]}}), Error);
}

}  // namespace
}  // namespace fourfold
