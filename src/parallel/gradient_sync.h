#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "parallel/bucket.h"
#include "parallel/in_flight.h"
#include "parallel/overlap_scheduler.h"
#include "parallel/parameter_unit.h"

namespace fourfold {

/// Sums the stored gradients (already summed over z by the scheduler) of a step's last backward
/// over data (experts': over their replicas), and over the x ranks that share a part of a key/value
/// weight or the rows of the residual stream, unit by unit as the backward goes on. With ZeRO-1 the
/// sum over data is a reduce-scatter: only Parameter::updated_gradient() holds it afterwards. Small
/// parameters of a unit are packed into one operation; neither that nor the order of units changes
/// a bit.
class GradientSync {
 public:
  /// Both outlive this. The scheduler's options say whether sums run behind the backward.
  GradientSync(const ParallelContext& context, OverlapScheduler& scheduler)
      : context_(context), scheduler_(scheduler) {}

  /// The last backward of the step is past this unit: its gradients grow no more, once their sums
  /// over z are stored.
  void passed(const ParameterUnit& unit);
  /// The same of parameters whose gradients are whole over z.
  void start(std::span<Parameter* const> parameters, Lane lane);
  /// Until all sums are there.
  void finish();

 private:
  struct Passed {
    const ParameterUnit* unit;
    std::int64_t scatters;  ///< The scheduler's count when it was passed.
  };
  struct Sum {
    Bucket bucket;
    at::Tensor sum;  ///< Of the bucket's gradients, or of this rank's part of them.
    /// Of large ones that travel in another type: the sum, and where it goes.
    std::vector<std::pair<at::Tensor, at::Tensor>> rounded;
    InFlight in_flight;
  };

  void start_ready(Lane lane);
  void sum_over_x(std::span<Parameter* const> parameters);
  void start_sums(const Replicated& set, Lane lane);
  /// Of a large one.
  void start_sum(Communicator& replicas, const Parameter& p, Lane lane, Sum& sum,
                 std::vector<at::Tensor>& tensors, std::vector<Work>& works);
  void finish_first();

  const ParallelContext& context_;
  OverlapScheduler& scheduler_;
  std::deque<Passed> passed_;
  std::deque<Sum> sums_;
};

}  // namespace fourfold
