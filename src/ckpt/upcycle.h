#pragma once

#include <string>
#include <vector>

#include "ckpt/fs.h"

namespace fourfold {

/// Makes a run folder whose model has experts of a checkpoint (a path as in ckpt/commands.h) of a
/// dense model: `overrides` say which ("model.moe.experts=8"). Where an expert is as wide as the
/// MLP, each is a copy of it, and the model computes what the dense one did, as a token's weights
/// sum to 1 ("sparse upcycling", Komatsuzaki et al., arXiv 2212.05055); where the MLP is a multiple
/// as wide, each is a part of it, in turn, and its output is scaled by their number, so that it is
/// the MLP's on average ("Read-ME", arXiv 2410.19123, splits in this way). Routers are drawn as new
/// ones are; moments are zero, and nothing is trained on yet. In memory at a time is one tensor.
/// Returns what was done, for people. Throws Error: kUsage where `out` is a run already or the
/// overrides make another model than that, kNoCheckpoint and kData of the checkpoint.
std::string upcycle_checkpoint(Fs& fs, const std::string& checkpoint, const std::string& out,
                               const std::vector<std::string>& overrides);

}  // namespace fourfold
