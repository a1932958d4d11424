#include "parallel/overlap_scheduler.h"

#include "base/check.h"

namespace fourfold {

void OverlapScheduler::add(const WeightBlock& weights) {
  const std::string& name = weights.parameters().front().spec.name;
  FF_CHECK(matrices_.emplace(name, &weights).second, "{} is there twice", name);
}

void OverlapScheduler::bind(std::span<const ParameterUnit> units) {
  for (const ParameterUnit& unit : units) {
    for (const Parameter* p : unit.parameters()) {
      const auto found = matrices_.find(p->spec.name);
      if (found != matrices_.end()) unit_of_[found->second] = &unit;
    }
  }
}

void OverlapScheduler::begin(std::span<const std::string> order) {
  FF_CHECK(ahead_.empty() && next_ == order_.size(), "a pass left {} gathers",
           order_.size() - next_ + ahead_.size());
  order_.clear();
  next_ = 0;
  for (const std::string& name : order) order_.push_back(matrices_.at(name));
}

at::Tensor OverlapScheduler::gather(const WeightBlock& weights) {
  const std::size_t depth =
      options_.all_gather ? static_cast<std::size_t>(options_.prefetch_depth) : 0;
  const Lane lane = options_.all_gather ? Lane::kGather : Lane::kCaller;
  // One more than the depth: the matrix that is used now is among them.
  while (ahead_.size() <= depth && next_ < order_.size()) {
    const WeightBlock* started = order_[next_++];
    const auto unit = unit_of_.find(started);
    if (unit != unit_of_.end()) settle(*unit->second);
    ahead_.emplace_back(started, started->start_gather(lane));
  }
  FF_CHECK(!ahead_.empty() && ahead_.front().first == &weights, "{} is not next in the plan",
           weights.parameters().front().spec.name);
  WeightBlock::Gather gather = std::move(ahead_.front().second);
  ahead_.pop_front();
  return gather.wait();
}

void OverlapScheduler::scatter(WeightBlock& weights, const WeightBlock::GradientTarget& target) {
  const Lane lane = options_.reduce_scatter ? Lane::kScatter : Lane::kCaller;
  const std::size_t most = options_.reduce_scatter ? kScattersInFlight : 0;
  scatters_.push_back(weights.start_scatter(target, lane));
  ++scatters_started_;
  while (scatters_.size() > most) {
    scatters_.front().finish();
    scatters_.pop_front();
  }
}

void OverlapScheduler::finish_scatters() {
  for (; !scatters_.empty(); scatters_.pop_front()) scatters_.front().finish();
}

void OverlapScheduler::spread(const ParallelContext& context, const ParameterUnit& unit) {
  settle(unit);  // Of an update whose weights nobody used.
  const Lane lane = options_.data_gather ? Lane::kGather : Lane::kCaller;
  spreads_.emplace(&unit, WeightSpread(context, unit, lane));
  if (!options_.data_gather) settle(unit);
}

void OverlapScheduler::settle(const ParameterUnit& unit) {
  const auto found = spreads_.find(&unit);
  if (found == spreads_.end()) return;
  found->second.finish();
  spreads_.erase(found);
}

}  // namespace fourfold
