#pragma once

#include <string>

#include "ckpt/fs.h"

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

}  // namespace fourfold
