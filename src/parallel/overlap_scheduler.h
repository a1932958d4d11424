#pragma once

#include <deque>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parallel/weight_spread.h"

namespace fourfold {

/// What of the communication runs behind computation, in a lane of its own; none of it changes a
/// bit but `forward_chunks`, whose products are of other shapes.
struct OverlapOptions {
  bool all_reduce = false;      ///< dI is summed while dW is computed (AxoNN's OAR).
  bool reduce_scatter = false;  ///< dW is summed over z until the update needs it (ORS).
  bool all_gather = false;      ///< Weights are gathered over z ahead of their use (OAG).
  bool data_reduce = false;     ///< Gradients are summed over data behind the last backward.
  bool data_gather = false;     ///< Updated weights are gathered over data until they are used.
  int prefetch_depth = 1;       ///< Matrices that are gathered ahead.
  int forward_chunks = 1;       ///< Pieces of the rows: one is summed while the next is computed.
};

/// Carries weights to their products and gradients back, as the plan of a pass says
/// (policy/overlap_plan.h). One per rank, used by its thread. Gradients are added to what is stored
/// in the order of the calls, however long the operations take.
class OverlapScheduler {
 public:
  explicit OverlapScheduler(const OverlapOptions& options) : options_(options) {}

  const OverlapOptions& options() const { return options_; }
  Lane reduce_lane() const { return options_.all_reduce ? Lane::kReduce : Lane::kCaller; }

  /// Each matrix of the model, once; it lives as long as this is used.
  void add(const WeightBlock& weights);

  /// The model's units, whose matrices are those added; they stay where they are.
  void bind(std::span<const ParameterUnit> units);

  /// A pass begins that will gather these matrices, by the names of their first parameters, in this
  /// order. Stored weights do not change before its last gather.
  void begin(std::span<const std::string> order);
  /// The next of them, whole; starts the gathers that come after it.
  at::Tensor gather(const WeightBlock& weights);

  /// Takes a written gradient and adds it, by finish_scatters() at the latest.
  void scatter(WeightBlock& weights, const WeightBlock::GradientTarget& target);
  /// Until all gradients are stored.
  void finish_scatters();
  /// Gradients taken so far, and of these the stored ones: they are stored in order.
  std::int64_t scatters_started() const { return scatters_started_; }
  std::int64_t scatters_finished() const {
    return scatters_started_ - static_cast<std::int64_t>(scatters_.size());
  }

  /// The unit's weights were updated: sends them to the data ranks that use them.
  void spread(const ParallelContext& context, const ParameterUnit& unit);
  /// To be called before the unit's vectors are used (its matrices are taken care of by gather()):
  /// its weights are whole then.
  void settle(const ParameterUnit& unit);

 private:
  /// Gradients on their way at a time: each holds a whole block in f32.
  static constexpr std::size_t kScattersInFlight = 4;

  using Ahead = std::pair<const WeightBlock*, WeightBlock::Gather>;

  OverlapOptions options_;
  std::unordered_map<std::string, const WeightBlock*> matrices_;
  std::vector<const WeightBlock*> order_;  ///< Of the pass.
  std::size_t next_ = 0;                   ///< In order_: what has not been started.
  std::deque<Ahead> ahead_;                ///< Started, not yet used.
  std::deque<WeightBlock::Scatter> scatters_;
  std::int64_t scatters_started_ = 0;
  std::unordered_map<const WeightBlock*, const ParameterUnit*> unit_of_;
  std::unordered_map<const ParameterUnit*, WeightSpread> spreads_;  ///< Under way.
};

}  // namespace fourfold
