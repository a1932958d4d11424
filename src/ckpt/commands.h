#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "ckpt/fs.h"
#include "ckpt/manifest.h"
#include "ckpt/state.h"

namespace fourfold {

// What `fourfold ckpt` does, in one process and without the runtime library. A path may be a run
// folder, its checkpoints/, or one step's folder; the first two stand for the newest checkpoint
// where one is meant. Errors: kData where the path has nothing to do with checkpoints,
// kNoCheckpoint where it has none.

/// A table of the checkpoints: step, size, grid, what is current, what is damaged.
Result<std::string> checkpoint_ls(const Fs& fs, const std::string& path);

/// What one checkpoint holds: its scalars, its files and its tensors.
Result<std::string> checkpoint_show(const Fs& fs, const std::string& path);

struct VerifyReport {
  std::string text;                   ///< For people, a line per checkpoint and per problem.
  std::vector<std::string> problems;  ///< Empty: every byte is as it was written.
  bool ok() const { return problems.empty(); }
};

/// Reads everything of one checkpoint, or of all that the folder has, and proves that each element
/// of each tensor is there exactly once and that all checksums are right. A checkpoint that is not
/// whole is no Error here: the command ends with kNoCheckpoint when there is a problem.
Result<VerifyReport> checkpoint_verify(const Fs& fs, const std::string& path);

/// What was saved beside the tensors (the configuration among it), without reading tensors.
Result<CheckpointMeta> checkpoint_peek(const Fs& fs, const std::string& path);

/// The folder checkpoints/ that the path leads to, for CheckpointStore, and the step, if the path
/// is one.
struct CheckpointPath {
  std::string dir;
  std::string folder;  ///< step-…; empty where the path is not one step.
};
Result<CheckpointPath> find_checkpoints(const Fs& fs, const std::string& path);

/// One checkpoint: its folder, and what its manifest says.
struct FoundCheckpoint {
  std::string folder;
  Manifest manifest;
};

/// The checkpoint that a path stands for: the step's, or the newest whose manifest can be read.
Result<FoundCheckpoint> find_checkpoint(const Fs& fs, const std::string& path);

}  // namespace fourfold
