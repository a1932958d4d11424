#pragma once

#include <string>

#include "base/error.h"
#include "ckpt/fs.h"

namespace fourfold {

struct DiffReport {
  std::string text;  ///< For people: a line for each difference, and a summary.
  bool equal = false;
};

/// Compares two checkpoints (paths as in ckpt/commands.h), whatever grids wrote them: tensors whose
/// bits differ, with the largest absolute difference and |a - b| / |a| (2-norms, in double), those
/// that one lacks or that are of another dtype or shape, and scalars. Grids, ZeRO and run names are
/// told, not counted. Reads everything; two tensors are in memory at a time.
Result<DiffReport> checkpoint_diff(const Fs& fs, const std::string& a, const std::string& b);

}  // namespace fourfold
