#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spec/run_spec.h"

namespace fourfold {

/// A value that cannot be: which key, why, and what would do.
struct Problem {
  std::string key;
  std::string message;
  std::string hint;
};

/// What of a run cannot be on any grid: missing or contradictory values. The first problem.
std::optional<Problem> check_run(const RunSpec& run);

/// What cannot be on the run's grid, whose axes are all known: divisions of heads, groups,
/// experts and batches.
std::optional<Problem> check_grid(const RunSpec& run);

/// Values of x on which the heads of a model can be placed: dividing heads, and dividing kv_heads
/// or divided by them. Ascending.
std::vector<int> possible_x(const ModelSpec& model);

/// The problem as an Error (kUsage) with the place where the key was given.
Error to_error(const RunSpec& run, const Problem& problem);

}  // namespace fourfold
