#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "ckpt/fs.h"
#include "ckpt/manifest.h"

namespace fourfold {

// What lies in a folder checkpoints/, and the acts of one process that change which of it counts.
// All but the Results throw Error.

inline constexpr const char* kCurrentName = "CURRENT";
inline constexpr const char* kAbandonedPrefix = "abandoned-";
inline constexpr const char* kRunIdName = "RUN_ID";
inline constexpr const char* kProbePrefix = ".probe-";  ///< Files of check_shared_folder.

struct Catalog {
  std::vector<CheckpointId> complete;  ///< With a manifest, whatever is in it; oldest first.
  /// Without one: a save that did not end, or what others refer to of a checkpoint that is gone.
  std::vector<CheckpointId> incomplete;
  std::vector<std::string> abandoned;   ///< Folders abandoned-….
  std::vector<std::string> stray;       ///< Temporary files that nobody writes.
  std::optional<CheckpointId> current;  ///< What CURRENT names, be it there or not.
  std::string current_problem;          ///< Why CURRENT could not be read; empty if there is none.

  /// Whether a run has been saved here, even if none of it is usable any more.
  bool has_history() const {
    return current || !current_problem.empty() || !complete.empty() || !abandoned.empty();
  }
  /// In the order in which they are to be tried: what CURRENT names, then the others, newest first.
  std::vector<CheckpointId> candidates() const;
  /// The first of the candidates that is there: where a run goes on from. It is older than the
  /// newest complete one where a commit stopped short of CURRENT.
  std::optional<CheckpointId> newest_committed() const;
};

/// The checkpoint that an abandoned folder was: "abandoned-step-00000200" or, where that name was
/// taken, "abandoned-step-00000200-2".
std::optional<CheckpointId> abandoned_id(const std::string& folder);

Catalog read_catalog(const Fs& fs, const std::string& dir);

/// Reads and checks a manifest, without the configuration. An Error (kData) too where the folder
/// has the name of another checkpoint.
Result<Manifest> read_manifest(const Fs& fs, const std::string& folder);

/// The configuration that the manifest names, checked.
Result<std::string> read_config(const Fs& fs, const std::string& folder, const Manifest& manifest);

/// Makes a checkpoint of a folder whose tensor files are on the disk, then the current one: writes
/// configuration and manifest, then CURRENT. `manifest.files` gains the configuration.
void commit_checkpoint(Fs& fs, const std::string& dir, Manifest manifest,
                       const std::string& config_toml);

/// Points CURRENT at a checkpoint.
void set_current(Fs& fs, const std::string& dir, const CheckpointId& id);

/// Makes the folder no checkpoint (its manifest goes first), then removes it.
void remove_checkpoint(Fs& fs, const std::string& dir, const std::string& folder);

/// Renames the checkpoints that are newer than `id`, so that they are never loaded by themselves.
/// Returns their names.
std::vector<std::string> abandon_newer(Fs& fs, const std::string& dir, const CheckpointId& id);

/// The incarnation of checkpoints that go on from `id`, so that no id is that of one which the run
/// has gone back to before: its own, or above all that is newer or abandoned.
int incarnation_after(const Catalog& catalog, const CheckpointId& id);

}  // namespace fourfold
