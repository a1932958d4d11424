#pragma once

#include "parallel/bucket.h"
#include "parallel/in_flight.h"
#include "parallel/parameter_unit.h"

namespace fourfold {

/// The updated weights of a unit on their way to the ranks that use them: with ZeRO-1 those that
/// replicate a shard gather the rows that the others updated, then the unit's vectors are fetched
/// anew.
class WeightSpread {
 public:
  /// Collective over the replicas, as is finish().
  WeightSpread(const ParallelContext& context, const ParameterUnit& unit, Lane lane);
  /// To be called once, before any use of the weights.
  void finish();

 private:
  struct Packed {
    Bucket bucket;
    at::Tensor tensor;
  };

  const ParameterUnit* unit_;
  std::vector<Packed> packed_;
  InFlight in_flight_;
};

}  // namespace fourfold
