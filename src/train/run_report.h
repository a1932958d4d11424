#pragma once

#include <string>

#include "spec/run_spec.h"

namespace fourfold {

/// Writes report.html of a run's folder from its metrics.jsonl: curves, the grid, what ran. A step
/// that was trained again after a restart counts as the last time it was. Returns the path. Throws
/// Error of kind kData.
std::string write_run_report(const RunSpec& run);

}  // namespace fourfold
