#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckpt/manifest.h"
#include "ckpt/store.h"
#include "comm/communicator.h"

namespace fourfold {

// Copies of the state in a memory file system that outlive the process that made them: what a run
// that was killed while it wrote a checkpoint had copied is written by the next start of the run.

/// The file of a rank's copy number `index`, an image of its tensor file.
std::string copy_path(const std::string& folder, int rank, int index);

/// Says of a copy, beside it, that it is whole, and of what. `committed`: the newest step that was
/// on the disk then, -1 for none.
void describe_copy(const std::string& folder, int rank, int index, const CheckpointMeta& meta,
                   const FileRecord& record, const std::vector<ManifestTensor>& tensors,
                   std::int64_t committed);

/// To be called before a copy is overwritten.
void forget_copy(const std::string& folder, int rank, int index);

/// Removes a rank's copies, and those of ranks that the run no longer has.
void remove_copies(const std::string& folder, int rank, int ranks);

/// Writes the newest state that all ranks have a whole copy of as a checkpoint, where the disk has
/// none as new. Only what this run left: the same model and grid, and the disk not taken back
/// meanwhile to before what it had then. Collective. Returns what was written.
Result<std::optional<CheckpointId>> write_surviving_copies(Communicator& world,
                                                           CheckpointStore& store,
                                                           const std::string& folder,
                                                           const CheckpointMeta& expected);

}  // namespace fourfold
