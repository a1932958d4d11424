#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/error.h"
#include "ckpt/catalog.h"
#include "ckpt/fs.h"

namespace fourfold {

// What stays of a folder checkpoints/, and what goes. All throw Error of the file system.

/// Which checkpoints stay when a new one is there.
struct Retention {
  int keep_latest = 0;  ///< Those of the newest steps, at least 1; 0: all stay.
  int keep_every = 0;   ///< And those of steps that are a multiple of this; 0: no others.
};

/// The files of older checkpoints that those which may be loaded refer to.
struct ReferredFiles {
  std::map<CheckpointId, std::set<std::string>> names;  ///< By the checkpoint that wrote them.
  /// Of a manifest that cannot be read, now: it may refer to any expert file.
  std::optional<Error> unknown;

  bool contains(const CheckpointId& id, const std::string& name) const;
};

/// Reads the manifests of all candidates.
ReferredFiles referred_files(const Fs& fs, const std::string& dir, const Catalog& catalog);

/// Removes temporary files and folders that are no checkpoints, but for expert files that a
/// checkpoint refers to. An Error where expert files were left because a manifest cannot be read.
std::optional<Error> collect_garbage(Fs& fs, const std::string& dir);

/// Removes all but the newest incarnations of the steps to be kept, what those refer to and what
/// CURRENT names, and abandoned folders that the run has caught up with. An Error as of
/// collect_garbage.
std::optional<Error> remove_older(Fs& fs, const std::string& dir, const Retention& retention);

}  // namespace fourfold
