#include "policy/step_writer.h"

#include <utility>

#include "base/check.h"
#include "policy/overlap_plan.h"

namespace fourfold {
namespace {

constexpr std::int64_t kF32 = 4;

}  // namespace

StepWriter::StepWriter(const RunSpec& run, std::vector<ProgramUnit> units)
    : overlap_(run.overlap),
      grid_(run.parallel.grid),
      zero_(run.memory.zero == 1),
      compute_bytes_(run.train.precision == Precision::kBf16 ? 2 : kF32),
      gradient_bytes_(run.overlap.grad_dtype == WireType::kBf16 ? 2 : kF32),
      units_(std::move(units)) {}

void StepWriter::compute(std::string name) {
  StepTask task;
  task.name = std::move(name);
  program_.tasks.push_back(std::move(task));
}

int StepWriter::collective(const char* operation, const std::string& group, int ranks,
                           std::int64_t bytes, TaskLane lane) {
  if (ranks == 1) return -1;
  const int number = program_.collectives++;
  program_.tasks.push_back({StepTask::Kind::kCollective, std::string(operation) + " " + group,
                            group, lane, bytes, number});
  return lane == TaskLane::kCaller ? -1 : number;
}

void StepWriter::wait(int collective) {
  if (collective < 0) return;
  StepTask task;
  task.kind = StepTask::Kind::kWait;
  task.collective = collective;
  program_.tasks.push_back(std::move(task));
}

void StepWriter::begin_pass(std::vector<const ProgramMatrix*> order, int slices) {
  FF_CHECK(ahead_.empty() && next_ == order_.size() && open_.empty(), "a pass is not over");
  order_ = std::move(order);
  next_ = 0;
  slices_ = slices;
}

void StepWriter::start_gather() {
  const ProgramMatrix* matrix = order_[next_++];
  settle(matrix->unit);
  Ahead ahead{matrix, {}, slices_};
  if (!cached_.contains(matrix)) {
    const TaskLane lane = overlap_.all_gather ? TaskLane::kGather : TaskLane::kCaller;
    for (const std::int64_t elements : matrix->members) {
      ahead.collectives.push_back(
          collective("all_gather", {Axis::kZ}, elements * compute_bytes_, lane));
    }
  }
  ahead_.push_back(std::move(ahead));
}

void StepWriter::gather(const ProgramMatrix& matrix) {
  std::size_t at = 0;
  for (;; ++at) {
    if (at == ahead_.size() && next_ < order_.size()) start_gather();
    FF_CHECK(at < ahead_.size(), "{} is not next", matrix.name);
    if (ahead_[at].matrix == &matrix) break;
  }
  const std::size_t depth =
      overlap_.all_gather ? static_cast<std::size_t>(overlap_.prefetch_depth) : 0;
  while (ahead_.size() <= at + depth && next_ < order_.size()) start_gather();
  for (const int c : std::exchange(ahead_[at].collectives, {})) wait(c);
  // The embedding and the first blocks.
  if (static_cast<int>(matrix.unit) <= overlap_.cache_layers && overlap_.cache_layers > 0) {
    cached_.insert(&matrix);
  }
  if (--ahead_[at].uses == 0) ahead_.erase(ahead_.begin() + static_cast<std::ptrdiff_t>(at));
}

void StepWriter::scatter(const ProgramMatrix& matrix) {
  const auto open = open_.try_emplace(&matrix, slices_).first;
  if (--open->second > 0) return;
  open_.erase(open);
  ++scatters_started_;
  if (grid_.z == 1) {
    // Nothing travels: it waits for what is before it, as it is stored in order.
    return;
  }
  const TaskLane lane = overlap_.reduce_scatter ? TaskLane::kScatter : TaskLane::kCaller;
  const std::size_t most = overlap_.reduce_scatter ? kScattersInFlight : 0;
  std::vector<int> collectives;
  for (const std::int64_t elements : matrix.members) {
    collectives.push_back(
        collective("reduce_scatter", {Axis::kZ}, elements * gradient_bytes_, lane));
  }
  scatters_.push_back(std::move(collectives));
  while (scatters_.size() > most) finish_first_scatter();
}

void StepWriter::finish_first_scatter() {
  for (const int c : scatters_.front()) wait(c);
  scatters_.pop_front();
}

void StepWriter::settle(std::size_t unit) {
  const auto found = spreads_.find(unit);
  if (found == spreads_.end()) return;
  const std::vector<int> collectives = std::move(found->second);
  spreads_.erase(found);
  for (const int c : collectives) wait(c);
  for (const auto& vectors : units_[unit].vectors) {
    for (const std::int64_t elements : vectors) {
      collective("all_gather", {Axis::kZ}, elements * compute_bytes_, TaskLane::kCaller);
    }
  }
}

void StepWriter::spread(std::size_t unit) {
  settle(unit);  // Of an update whose weights nobody used.
  std::erase_if(cached_, [&](const ProgramMatrix* matrix) { return matrix->unit == unit; });
  const TaskLane lane = overlap_.data_gather ? TaskLane::kGather : TaskLane::kCaller;
  std::vector<int> collectives;
  std::int64_t packed = 0;
  for (const ProgramUnit::Parameter& p : units_[unit].parameters) {
    if (!zero_) break;
    if (p.stored < kPackedBelow) {
      packed += p.stored;
      continue;
    }
    collectives.push_back(collective("all_gather", {Axis::kData}, p.stored * compute_bytes_, lane));
  }
  if (packed > 0) {
    collectives.push_back(collective("all_gather", {Axis::kData}, packed * compute_bytes_, lane));
  }
  spreads_[unit] = std::move(collectives);
  if (!overlap_.data_gather) settle(unit);
}

void StepWriter::passed(std::size_t unit) {
  passed_.push_back({unit, scatters_started_});
  if (overlap_.data_reduce) start_ready_sums(TaskLane::kReduce);
}

void StepWriter::finish_sums() {
  while (!scatters_.empty()) finish_first_scatter();
  start_ready_sums(overlap_.data_reduce ? TaskLane::kReduce : TaskLane::kCaller);
  while (!sums_.empty()) finish_first_sum();
}

void StepWriter::start_ready_sums(TaskLane lane) {
  while (!passed_.empty() && passed_.front().scatters <= scatters_started_ - scatters_.size()) {
    const ProgramUnit& unit = units_[passed_.front().unit];
    passed_.pop_front();
    for (const auto& vectors : unit.vectors) {
      for (const std::int64_t elements : vectors) {
        collective("reduce_scatter", {Axis::kZ}, elements * kF32, TaskLane::kCaller);
      }
    }
    sum_over_x(unit);
    if (grid_.data > 1) start_sums(unit, lane);
  }
}

void StepWriter::sum_over_x(const ProgramUnit& unit) {
  std::int64_t packed = 0;
  for (const ProgramUnit::Parameter& p : unit.parameters) {
    if (p.rows_over_x) packed += p.stored;
    collective("all_reduce", p.sharers_name, p.sharers, p.stored * kF32, TaskLane::kCaller);
  }
  if (packed > 0) collective("all_reduce", {Axis::kX}, packed * kF32, TaskLane::kCaller);
}

void StepWriter::start_sums(const ProgramUnit& unit, TaskLane lane) {
  const char* operation = zero_ ? "reduce_scatter" : "all_reduce";
  std::vector<int> collectives;
  std::int64_t packed = 0;
  for (const ProgramUnit::Parameter& p : unit.parameters) {
    if (p.stored < kPackedBelow) {
      packed += p.stored;
      continue;
    }
    collectives.push_back(collective(operation, {Axis::kData}, p.stored * gradient_bytes_, lane));
  }
  if (packed > 0) {
    collectives.push_back(collective(operation, {Axis::kData}, packed * kF32, lane));
  }
  sums_.push_back(std::move(collectives));
  while (sums_.size() > kSumsInFlight) finish_first_sum();
}

void StepWriter::finish_first_sum() {
  for (const int c : sums_.front()) wait(c);
  sums_.pop_front();
}

}  // namespace fourfold
