#include "parallel/overlap_scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fourfold {

void OverlapScheduler::add(const WeightBlock& weights) {
  FF_CHECK(matrices_.emplace(weights.name(), &weights).second, "{} is there twice", weights.name());
}

void OverlapScheduler::bind(std::span<const ParameterUnit> units, std::size_t cached) {
  for (const ParameterUnit& unit : units) {
    for (const WeightBlock* weights : unit.matrices()) {
      unit_of_[weights] = &unit;
      if (cached > 0) cache_[weights].reset();
    }
    if (cached > 0) --cached;
  }
}

void OverlapScheduler::begin(std::span<const std::string> order, int slices) {
  FF_CHECK(ahead_.empty() && next_ == order_.size() && open_.empty(),
           "a pass left {} gathers and {} gradients", order_.size() - next_ + ahead_.size(),
           open_.size());
  order_.clear();
  next_ = 0;
  slices_ = slices;
  for (const std::string& name : order) order_.push_back(matrices_.at(name));
}

void OverlapScheduler::start_gather() {
  const WeightBlock* started = order_[next_++];
  const auto unit = unit_of_.find(started);
  if (unit != unit_of_.end()) settle(*unit->second);
  const auto kept = cache_.find(started);
  if (kept != cache_.end() && kept->second.defined()) {
    ahead_.push_back({started, {kept->second, {}}, slices_});
    return;
  }
  const Lane lane = options_.all_gather ? Lane::kGather : Lane::kCaller;
  ahead_.push_back({started, started->start_gather(lane), slices_});
}

at::Tensor OverlapScheduler::gather(const WeightBlock& weights) {
  // A slice whose turn it is may be ahead of the others by the matrices of a turn.
  const std::size_t most = slices_ > 1 ? kGathersInATurn : 1;
  std::size_t at = 0;
  for (;; ++at) {
    if (at == ahead_.size() && next_ < order_.size()) start_gather();
    FF_CHECK(at < std::min(most, ahead_.size()), "{} is not next in the plan", weights.name());
    if (ahead_[at].weights == &weights) break;
  }
  const std::size_t depth =
      options_.all_gather ? static_cast<std::size_t>(options_.prefetch_depth) : 0;
  while (ahead_.size() <= at + depth && next_ < order_.size()) start_gather();
  const at::Tensor block = ahead_[at].gather.wait();
  if (const auto kept = cache_.find(&weights); kept != cache_.end()) kept->second = block;
  if (--ahead_[at].uses == 0) ahead_.erase(ahead_.begin() + static_cast<std::ptrdiff_t>(at));
  return block;
}

WeightBlock::GradientTarget OverlapScheduler::gradient_target(WeightBlock& weights) {
  const auto [open, first] = open_.try_emplace(&weights);
  if (first) {
    open->second = {weights.new_gradient_target(), slices_};
    return open->second.target;
  }
  WeightBlock::GradientTarget target = open->second.target;
  target.accumulate = true;
  return target;
}

void OverlapScheduler::scatter(WeightBlock& weights) {
  const auto open = open_.find(&weights);
  FF_CHECK(open != open_.end(), "a gradient without a target");
  if (--open->second.slices > 0) return;
  const Lane lane = options_.reduce_scatter ? Lane::kScatter : Lane::kCaller;
  const std::size_t most = options_.reduce_scatter ? kScattersInFlight : 0;
  scatters_.push_back(weights.start_scatter(open->second.target, lane));
  open_.erase(open);
  ++scatters_started_;
  while (!scatters_.empty() && (scatters_.size() > most || !scatters_.front().travels())) {
    scatters_.front().finish();
    scatters_.pop_front();
  }
}

void OverlapScheduler::finish_scatters() {
  for (; !scatters_.empty(); scatters_.pop_front()) scatters_.front().finish();
}

void OverlapScheduler::spread(const ParallelContext& context, const ParameterUnit& unit) {
  settle(unit);  // Of an update whose weights nobody used.
  for (auto& [weights, block] : cache_) {
    if (unit_of_.at(weights) == &unit) block.reset();
  }
  const Lane lane = options_.data_gather ? Lane::kGather : Lane::kCaller;
  spreads_.emplace_back(&unit, WeightSpread(context, unit, lane));
  if (!options_.data_gather) settle(unit);
}

void OverlapScheduler::settle(const ParameterUnit& unit) {
  const auto found = std::find_if(spreads_.begin(), spreads_.end(),
                                  [&](const auto& spread) { return spread.first == &unit; });
  if (found == spreads_.end()) return;
  WeightSpread spread = std::move(found->second);
  spreads_.erase(found);
  spread.finish();
}

void OverlapScheduler::settle() {
  while (!spreads_.empty()) settle(*spreads_.front().first);
}

}  // namespace fourfold
