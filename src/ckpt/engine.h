#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/background_job.h"
#include "base/clock.h"
#include "ckpt/save_content.h"
#include "ckpt/snapshot_buffer.h"
#include "ckpt/store.h"
#include "ckpt/surviving_copies.h"

namespace fourfold {

struct EngineOptions {
  /// Training goes on while a copy of the state is written; otherwise it waits for the disk.
  bool async = true;
  /// A memory file system for the copies, which then outlive the process; empty: own memory.
  std::string memory_dir = {};
  SaveOptions save = {};
  /// The checkpoint that the run goes on from, whose versions saves may refer to; none: it begins.
  std::optional<Manifest> base = {};
};

/// What a checkpoint cost and became.
struct EngineReport {
  SaveReport save;
  double copy_seconds = 0;  ///< This rank's.
  /// What this rank's main thread spent on checkpoints from its save() on: with two on their way,
  /// both count what is spent on either.
  double held_seconds = 0;
};

/// Takes checkpoints of a state while training goes on (docs/checkpoint_format.md, Two levels):
/// 1. save() marks the boundary; a thread copies the state into a buffer while the next step's
///    forward and backward run.
/// 2. before_update() waits for the copy: parameters and moments change only after it.
/// 3. Another thread writes the buffer to the disk, for as long as it takes.
/// 4. before_update() and boundary(), each once a step, exchange among the ranks how far they are,
///    and so carry the checkpoint through its commit: two steps, where the disk keeps pace.
/// Copies that an earlier process of the run left are forgotten (write_surviving_copies is for
/// before). Three buffers: one is written, one waits for that with a newer state, one keeps the
/// newest committed state. A third save, when two are on their way, waits for the disk.
///
/// A save may leave tensors that rotate to older checkpoints: their bytes are then those of their
/// newest version that is committed when the writing begins, found in the newest committed
/// manifest. A save that fails changes no version.
///
/// All calls are collective, in the same order on all ranks. One thread only.
class CheckpointEngine {
 public:
  /// `state` stays where it is; store, world and the memory of the state outlive the engine. Throws
  /// the Error of agree_on_save.
  CheckpointEngine(Communicator& world, CheckpointStore& store, std::vector<StateTensor> state,
                   EngineOptions options, Log log);
  ~CheckpointEngine();

  /// Begins a checkpoint of the state as it is now; without async, ends it as well. One that leaves
  /// out a tensor of which no version is committed fails (kData). Throws Error (kInternal) where
  /// the ranks do not select the same.
  void save(const CheckpointMeta& meta, const SaveSelection& selection = {});
  /// To be called before the state changes.
  void before_update();
  /// To be called at each step boundary, before save().
  void boundary();
  /// Until nothing is under way.
  void drain();

  /// The checkpoints that were committed or failed since the last call.
  std::vector<EngineReport> take_reports();
  /// The seconds that the main thread spent here since the last call.
  double take_held_seconds();
  /// Whether what this rank does in the background ends within that time: a process cannot leave
  /// before. For a run that fails. Not collective.
  bool ends_within(std::chrono::milliseconds time);

  /// The newest committed checkpoint, with the newest version of each tensor that rotates; null
  /// before the first.
  const Manifest* newest() const { return newest_ ? &*newest_ : nullptr; }

  /// Removes the copies that outlive the process: for a run that has ended well.
  void forget_copies();

 private:
  struct Snapshot;
  void advance(std::chrono::milliseconds patience);
  void wait_for_copy();
  void save_and_wait(CheckpointMeta meta, const SaveSelection& selection);
  std::unique_ptr<SaveTask> begin_task(const CheckpointMeta& meta, const SaveSelection& selection,
                                       double held_before, SaveTask::WriteFiles write);
  std::shared_ptr<Snapshot> begin_copy(const CheckpointMeta& meta, const SaveSelection& selection);
  void copy(Snapshot& snapshot, const CopyOrigin& origin);
  void begin_write(std::shared_ptr<Snapshot> snapshot);
  void end_write();
  int free_buffer() const;

  Communicator& world_;
  CheckpointStore& store_;
  EngineOptions options_;
  Log log_;
  SteadyClock clock_;
  PosixFs memory_;
  SaveAgreement agreement_;
  std::string folder_;  ///< Of the copies that outlive the process; empty: there are none.
  std::array<SnapshotBuffer, kCopies> buffers_;
  long snapshots_ = 0;
  std::optional<Manifest> newest_;  ///< The newest committed checkpoint.
  CopyOrigin origin_;               ///< Of what is saved now.
  bool said_lost_ = false;          ///< That copies will not outlive the process.

  std::shared_ptr<Snapshot> copying_;    ///< Until the copy has been waited for.
  std::shared_ptr<Snapshot> waiting_;    ///< For the disk.
  std::shared_ptr<Snapshot> writing_;    ///< What task_ writes.
  std::shared_ptr<Snapshot> committed_;  ///< The newest that is on the disk.
  std::unique_ptr<SaveTask> task_;

  std::vector<EngineReport> reports_;  ///< With held_seconds_ as it was before each, negative.
  double held_seconds_ = 0;            ///< In all.
  double held_seconds_taken_ = 0;      ///< Of these, what take_held_seconds has given.
};

}  // namespace fourfold
