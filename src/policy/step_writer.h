#pragma once

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "layout/grid.h"
#include "policy/step_parts.h"
#include "policy/step_program.h"

namespace fourfold {

/// Writes a StepProgram: when collectives start and where they are waited for, as OverlapScheduler
/// and GradientSync do it.
class StepWriter {
 public:
  StepWriter(const RunSpec& run, std::vector<ProgramUnit> units);

  void begin_step() { program_.begins.push_back(program_.tasks.size()); }
  void compute(std::string name);
  /// Returns its number; -1 where the group is of one rank or the caller's lane waits at once.
  int collective(const char* operation, const std::string& group, int ranks, std::int64_t bytes,
                 TaskLane lane);
  int collective(const char* operation, AxisSet axes, std::int64_t bytes, TaskLane lane) {
    return collective(operation, axes.name(), grid_.size(axes), bytes, lane);
  }
  void wait(int collective);

  TaskLane forward_lane() const { return slices_ > 1 ? TaskLane::kReduce : TaskLane::kCaller; }
  TaskLane reduce_lane() const { return overlap_.all_reduce ? TaskLane::kReduce : forward_lane(); }

  /// A pass over these matrices, each used once by every slice.
  void begin_pass(std::vector<const ProgramMatrix*> order, int slices);
  void gather(const ProgramMatrix& matrix);
  /// A slice gave its part of the gradient.
  void scatter(const ProgramMatrix& matrix);
  /// The unit's vectors are used next.
  void settle(std::size_t unit);

  /// The step's last backward is past the unit.
  void passed(std::size_t unit);
  void finish_sums();
  /// The unit was updated.
  void spread(std::size_t unit);

  StepProgram take() { return std::move(program_); }

 private:
  struct Ahead {
    const ProgramMatrix* matrix;
    std::vector<int> collectives;
    int uses;
  };
  void start_gather();
  void finish_first_scatter();
  void start_ready_sums(TaskLane lane);
  void start_sums(const ProgramUnit& unit, TaskLane lane);
  void finish_first_sum();
  void sum_over_x(const ProgramUnit& unit);

  const OverlapSpec overlap_;
  const GridShape grid_;
  const bool zero_;
  const std::int64_t compute_bytes_, gradient_bytes_;  ///< Of an element.
  const std::vector<ProgramUnit> units_;
  StepProgram program_;

  int slices_ = 1;
  std::vector<const ProgramMatrix*> order_;
  std::size_t next_ = 0;
  std::deque<Ahead> ahead_;
  std::unordered_set<const ProgramMatrix*> cached_;     ///< Whole until their unit's update.
  std::unordered_map<const ProgramMatrix*, int> open_;  ///< Slices that still give a part.
  std::deque<std::vector<int>> scatters_;
  std::size_t scatters_started_ = 0;
  struct Passed {
    std::size_t unit, scatters;
  };
  std::deque<Passed> passed_;
  std::deque<std::vector<int>> sums_;
  std::map<std::size_t, std::vector<int>> spreads_;  ///< By unit.
};

}  // namespace fourfold
