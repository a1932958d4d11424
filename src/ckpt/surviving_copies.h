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

/// Copies of a rank.
inline constexpr int kCopies = 3;

/// Which run and which start of it a state comes from: two states of one step may be of two pasts.
struct CopyOrigin {
  std::string run;      ///< CheckpointStore::run_id().
  std::string session;  ///< Drawn anew by each start.
  /// timeline_name() of the checkpoint that the session began with; empty: none.
  std::string base;
  std::optional<CheckpointId> committed;  ///< The newest on the disk when the copy was made.
};

/// A checkpoint and its past: the folder's name with the session that wrote it.
std::string timeline_name(const CheckpointId& id, const CheckpointMeta& meta);

/// The file of a rank's copy number `index`, an image of its files.
std::string copy_path(const std::string& folder, int rank, int index);

/// Says of the copy at `path`, beside it, that it is whole, and of what. `id` is what the
/// checkpoint is to be, if that is free.
void describe_copy(Fs& fs, const std::string& path, const CopyOrigin& origin,
                   const CheckpointId& id, const CheckpointMeta& meta, const RankRecords& records,
                   const SaveAgreement& agreement, const SaveSelection& selection);

/// To be called before a copy is overwritten.
void forget_copy(Fs& fs, const std::string& path);

/// Removes a rank's copies, and those of ranks that the run no longer has.
void remove_copies(Fs& fs, const std::string& folder, int rank, int ranks);

/// Writes the newest state that all ranks have a whole copy of as a checkpoint, if it goes on from
/// the newest one on the disk: the same run, model and grid, written by the session that wrote that
/// one or began with it. What the copies leave out is referred to as that one has it. Collective.
/// Returns what was written; a copy that is damaged or does not fit is passed over (with a word to
/// the store's log). An Error where a good copy cannot be written: it is still there.
Result<std::optional<CheckpointId>> write_surviving_copies(Communicator& world,
                                                           CheckpointStore& store, Fs& memory,
                                                           const std::string& folder,
                                                           const CheckpointMeta& expected);

}  // namespace fourfold
