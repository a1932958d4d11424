#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "ckpt/fs.h"
#include "ckpt/retention.h"
#include "ckpt/save_task.h"
#include "ckpt/state.h"
#include "comm/communicator.h"

namespace fourfold {

/// What a load gives beside the tensors.
struct Loaded {
  CheckpointMeta meta;
  CheckpointId id;
  Manifest manifest;    ///< The checkpoint's, which later ones may refer to (EngineOptions).
  int incarnation = 0;  ///< Of the checkpoints that go on from this one (SaveOptions).
  std::vector<std::string> skipped;  ///< Newer checkpoints that were passed over, with the reason.
};

/// A number that no other start of any run has drawn.
std::int64_t draw_number();

/// The checkpoints of a run: a folder that all ranks see. Calls that take a communicator are
/// collective over it and give the same answer on all of its ranks, also when only one of them
/// failed: its error then begins with its rank. docs/checkpoint_format.md has the format and the
/// order in which things reach the disk.
///
/// A rank may take minutes longer than another over its files: while it does, the ranks exchange a
/// sign of life, so that a slow disk is no lost peer.
class CheckpointStore {
 public:
  /// `dir` is the folder checkpoints/ itself; the first save makes it. `fs` outlives the store.
  CheckpointStore(Fs& fs, std::string dir, Log log = {});

  /// To be called once before training: makes the folder and proves that all ranks see the same
  /// one. Removes what interrupted saves left.
  Status check_shared_folder(Communicator& world);

  /// Writes the state as a new checkpoint, makes it the current one and removes what the retention
  /// does not keep. The tensors must not change until it returns. When it fails, the older
  /// checkpoints are as they were, and nothing is left that could be taken for a checkpoint. Every
  /// rank passes the same `meta`; rank 0's is stored. Errors: kData (disk full, with the bytes
  /// wanted and free; a failing file system).
  Result<SaveReport> save(Communicator& world, const CheckpointMeta& meta,
                          std::span<const StateTensor> tensors, const Retention& retention = {});

  /// The same as a task that goes on in the background, whose files of this rank `write` writes.
  /// Not collective itself. Only one is under way at a time; the store outlives it.
  std::unique_ptr<SaveTask> begin_save(int rank, const CheckpointMeta& meta, SaveContent content,
                                       SaveTask::WriteFiles write, const SaveOptions& options);

  /// Fills the tensors' regions from the newest usable checkpoint, written on any grid. A damaged
  /// one is passed over, by all ranks together and with a warning; those newer than the one taken
  /// are then renamed abandoned-…, so that the run goes on from this one for good. None where the
  /// run has no checkpoint yet. Errors: kNoCheckpoint where there are checkpoints and none is
  /// usable (each with its reason); kData where one is good but is not of these tensors (the name,
  /// both shapes or dtypes). After an error the tensors hold anything.
  Result<std::optional<Loaded>> load_latest(Communicator& world, std::span<StateTensor> tensors);

  /// The same from one checkpoint, by the name of its folder in dir() (find_checkpoints gives it),
  /// or with an empty name from the newest usable one, and changing nothing in the folder. One that
  /// is missing or damaged is kNoCheckpoint.
  Result<Loaded> load(Communicator& world, const std::string& folder,
                      std::span<StateTensor> tensors);

  Fs& fs() { return fs_; }
  const std::string& dir() const { return dir_; }
  const Log& log() const { return log_; }
  /// What tells the run from any other that had, has or will have the same folder; made by the
  /// first check_shared_folder of the folder, kept in it, and empty before.
  const std::string& run_id() const { return run_id_; }

 private:
  Result<Loaded> load_first_usable(Communicator& world, std::span<StateTensor> tensors,
                                   const std::vector<std::string>& folders);
  std::optional<Error> load_one(Communicator& world, std::span<StateTensor> tensors,
                                const std::string& folder, Loaded& loaded, bool& fits);

  Fs& fs_;
  std::string dir_;
  Log log_;
  std::string run_id_;
  long saves_ = 0;  ///< Saves begun so far: the passage that fault points count.
};

}  // namespace fourfold
