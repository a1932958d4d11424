#pragma once

#include <optional>
#include <vector>

#include "spec/run_spec.h"
#include "spec/validate.h"

namespace fourfold {

/// What of a run's experts cannot be on any grid. The first problem.
std::optional<Problem> check_moe(const RunSpec& run);

/// Whether the experts can be spread over the run's grid, whose axes are all known.
std::optional<Problem> check_expert_grid(const RunSpec& run);

/// Values of parallel.expert on this grid that leave no rank without an expert: dividing z, or
/// multiples of z that divide z·data. Ascending.
std::vector<int> possible_expert(const MoeSpec& moe, const GridShape& grid);

}  // namespace fourfold
