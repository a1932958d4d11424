#pragma once

#include <string>
#include <vector>

#include "ckpt/fs.h"
#include "layout/grid.h"

namespace fourfold {

/// A grid and its ranks over experts.
struct ReshardGrid {
  GridShape grid;
  int expert = 1;
};

/// Writes a checkpoint (a path as in ckpt/commands.h) anew as the ranks of another grid would have
/// saved it, with its own run file, in the new run folder `out`; one tensor is in memory at a time,
/// and every checksum is checked before anything is written. `overrides` are values of the run file
/// ("train.micro_batch=1", where the old one does not fit the grid). Returns what was done, for
/// people. Throws Error: kUsage where `out` is a run already or the model cannot be cut like that,
/// kNoCheckpoint and kData of the checkpoint.
std::string reshard_checkpoint(Fs& fs, const std::string& checkpoint, const std::string& out,
                               const ReshardGrid& target,
                               const std::vector<std::string>& overrides);

}  // namespace fourfold
