#pragma once

#include <vector>

#include "base/error.h"
#include "spec/run_spec.h"

namespace fourfold {

/// What each block of the run computes again so that the predicted peak of the fullest rank
/// (predict_memory, with an even load of experts) stays within memory.budget, at the least extra
/// work that is found: what saves most bytes for its multiply-adds first, of blocks that are alike
/// the first ones, whose activations are held for longest. kUsage where all of it is not enough.
Result<std::vector<Recompute>> choose_recompute(const RunSpec& run);

/// Sets memory.by_block of a run that has a budget; throws the error of choose_recompute(). Its
/// grid is known.
void resolve_recompute(RunSpec& run);

/// Multiply-adds of a token that one block computes again, of the whole grid.
double recompute_work(const RunSpec& run, int block, Recompute recompute);

}  // namespace fourfold
