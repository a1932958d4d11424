#pragma once

#include <deque>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "parallel/weight_spread.h"
#include "policy/overlap_plan.h"

namespace fourfold {

/// What of the communication runs behind computation, in a lane of its own; none of it changes a
/// bit but `slices`, whose products are of other shapes.
struct OverlapOptions {
  bool all_reduce = false;      ///< dI is summed while dW is computed (AxoNN's OAR).
  bool reduce_scatter = false;  ///< dW is summed over z until the update needs it (ORS).
  bool all_gather = false;      ///< Weights are gathered over z ahead of their use (OAG).
  bool data_reduce = false;     ///< Gradients are summed over data behind the last backward.
  bool data_gather = false;     ///< Updated weights are gathered over data until they are used.
  int prefetch_depth = 1;       ///< Matrices that are gathered ahead.
  int slices = 1;  ///< Of a micro-batch: the collectives of one run while another computes.
};

/// Carries weights to their products and gradients back, as the plan of a pass says
/// (policy/overlap_plan.h). One per rank, used by its thread. Gradients are added to what is stored
/// in the order of the calls, however long the operations take.
class OverlapScheduler {
 public:
  explicit OverlapScheduler(const OverlapOptions& options) : options_(options) {}

  const OverlapOptions& options() const { return options_; }
  /// Of sums that the pass waits for at once, unless another slice takes its turn.
  Lane forward_lane() const { return slices_ > 1 ? Lane::kReduce : Lane::kCaller; }
  /// Of sums behind which the same slice still computes something.
  Lane reduce_lane() const { return options_.all_reduce ? Lane::kReduce : forward_lane(); }

  /// Each matrix of the model, once; it lives as long as this is used.
  void add(const WeightBlock& weights);

  /// The model's units, whose matrices are those added; they stay where they are. Of the first
  /// `cached` of them, gathered matrices are kept until spread().
  void bind(std::span<const ParameterUnit> units, std::size_t cached = 0);

  /// A pass begins that will gather these matrices, by their names, in this
  /// order, each once for every slice, which keep step with each other. Stored weights do not
  /// change before its last gather.
  void begin(std::span<const std::string> order, int slices = 1);
  /// The next of them, whole; starts the gathers that come after it.
  at::Tensor gather(const WeightBlock& weights);

  /// WeightBlock::gradient_target() of a pass: one target for all slices, of which all but the
  /// first add to it.
  WeightBlock::GradientTarget gradient_target(WeightBlock& weights);

  /// Takes a written gradient, once all slices have given theirs, and adds it, by
  /// finish_scatters() at the latest.
  void scatter(WeightBlock& weights);
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
  /// The same for all units.
  void settle();

 private:
  /// That a slice does between two collectives of activations, at most: the head's and, for the
  /// backward pass of the last block, its experts' two.
  static constexpr std::size_t kGathersInATurn = 3;

  struct Ahead {
    const WeightBlock* weights;
    WeightBlock::Gather gather;
    int uses;  ///< That are still to come.
  };
  struct Open {
    WeightBlock::GradientTarget target;
    int slices = 0;  ///< That have not given their gradient.
  };

  /// The next of the order.
  void start_gather();

  OverlapOptions options_;
  int slices_ = 1;  ///< Of the pass.
  std::unordered_map<std::string, const WeightBlock*> matrices_;
  std::vector<const WeightBlock*> order_;        ///< Of the pass.
  std::size_t next_ = 0;                         ///< In order_: what has not been started.
  std::deque<Ahead> ahead_;                      ///< Started, not yet used.
  std::unordered_map<WeightBlock*, Open> open_;  ///< Gradients that await other slices.
  std::deque<WeightBlock::Scatter> scatters_;
  std::int64_t scatters_started_ = 0;
  std::unordered_map<const WeightBlock*, const ParameterUnit*> unit_of_;
  /// Of units whose gathered matrices are kept: the matrix, undefined where it is not there.
  std::unordered_map<const WeightBlock*, at::Tensor> cache_;
  std::deque<std::pair<const ParameterUnit*, WeightSpread>> spreads_;  ///< Under way, in order.
};

/// The same where there may be no scheduler.
inline Lane forward_lane(const ParallelContext& context) {
  return context.overlap ? context.overlap->forward_lane() : Lane::kCaller;
}

}  // namespace fourfold
