#pragma once

#include <span>

#include "parallel/parameter.h"

namespace fourfold {

/// Once per step, after the last backward: sums the stored gradients (already summed over z) over
/// data, and over the x ranks that share a part of a key/value weight. With ZeRO-1 the sum over
/// data is a reduce-scatter: only Parameter::updated_gradient() holds it afterwards.
void sum_gradients(const ParallelContext& context, std::span<Parameter* const> parameters);

/// After the update: with ZeRO-1 the data ranks gather the rows that the others updated.
void gather_updated_weights(const ParallelContext& context, std::span<Parameter* const> parameters);

}  // namespace fourfold
