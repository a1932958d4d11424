#pragma once

#include <map>
#include <string>
#include <vector>

#include "train/router_record.h"

namespace fourfold {

/// Metrics by step; of a step that stands there twice, the later line.
struct RunCurves {
  using Line = std::map<std::string, double>;

  std::map<double, Line> steps, validations;
  /// By block, then by step; empty for a dense model.
  std::map<std::int64_t, std::map<double, RouterRecord>> routers;
  std::vector<double> restarts;  ///< Steps from which training went on again.
};

/// Reads a metrics.jsonl. Throws Error of kind kData.
RunCurves read_curves(const std::string& path);

}  // namespace fourfold
