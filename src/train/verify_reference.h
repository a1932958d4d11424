#pragma once

#include <map>
#include <string>
#include <vector>

#include "spec/run_spec.h"
#include "train/rank_model.h"

namespace fourfold {

/// A few steps of training on one rank: what every grid has to agree with.
struct VerifyReference {
  /// Full tensors before a step (by StateTensor::key) and the gradients of that step (by name).
  struct StepState {
    std::map<std::string, at::Tensor> state;
    std::map<std::string, at::Tensor> gradients;
    // Of a model with experts: what routers kept before the step, chose and counted in it.
    std::vector<RouterMemory> memory;
    RoutingTable routing;
    std::vector<RouterTally> tally;
    double aux_loss = 0, z_loss = 0;
  };
  std::vector<StepState> steps;
  std::vector<double> losses;
};

/// The spec's run with the given grid and accumulation in place of its own; the global batch stays.
RunSpec with_grid(const RunSpec& run, GridShape grid, int accumulation);

/// Trains `steps` steps on one rank in the calling thread.
VerifyReference make_reference(const RunSpec& run, int steps, const SampleReader& samples,
                               int accumulation = 1);

/// Tokens that need no data set: each a function of the run's seed and its place.
SampleReader random_samples(const RunSpec& run);

}  // namespace fourfold
