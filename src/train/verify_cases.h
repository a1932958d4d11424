#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spec/run_spec.h"

namespace fourfold {

/// One thing to verify: a run on a grid, with its accumulation and, with experts, its ranks over
/// them, its way of balance and of recompute.
struct VerifyCase {
  RunSpec run;
  int accumulation = 1;  ///< That of `run`.
  std::string obstacle;  ///< Why it cannot be verified; empty: it can.

  /// "2x1x2x1", with experts "2x1x2x1 e2".
  std::string grid_name() const;
  /// Of a model with experts: "aux_loss sequence", "none".
  std::string balance_name() const;
  /// Accumulation of the one rank to compare with: where samples are balanced with those of their
  /// micro-step, both must have the same.
  int reference_accumulation() const;
  /// Equal for cases that one reference serves.
  std::string reference_key() const;
};

/// All cases of a run. A dense model's are a list of grids (the run's own among them) with
/// accumulation 1 and 3; with experts each also with every way of balance, without recompute and
/// with all of it.
std::vector<VerifyCase> verify_cases(const RunSpec& run);

}  // namespace fourfold
