#pragma once

#include <string>

#include <vector>

#include "ckpt/fs.h"
#include "ckpt/offline_writer.h"
#include "spec/run_spec.h"

namespace fourfold {

/// A run folder that is to be made around a checkpoint.
struct NewRun {
  std::string dir;
  std::string checkpoints() const { return join_path(dir, "checkpoints"); }
  std::string run_file() const { return join_path(dir, "config.toml"); }
};

/// `out` as a run folder (or its checkpoints/, whose parent is meant). Throws Error (kUsage) where
/// it is a run already: nothing is overwritten.
NewRun new_run(const Fs& fs, std::string out);

/// The start of a run whose weights come from elsewhere: no step done, moments of zero; as one rank
/// keeps it.
CheckpointMeta new_run_meta(const RunSpec& run);
/// Masters and moments of every parameter.
std::vector<OfflineTensor> new_run_state(const ModelSpec& model);

}  // namespace fourfold
