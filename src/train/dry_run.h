#pragma once

#include <string>

#include "spec/run_spec.h"

namespace fourfold {

/// What `train --dry-run` prints: the resolved configuration, the grid, and the memory of the
/// fullest rank at its peak, by part. Nothing is allocated and no rank is started.
std::string describe_run(const RunSpec& run);

}  // namespace fourfold
