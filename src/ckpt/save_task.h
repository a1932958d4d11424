#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/background_job.h"
#include "base/log.h"
#include "ckpt/fs.h"
#include "ckpt/manifest.h"
#include "ckpt/rank_files.h"
#include "ckpt/retention.h"
#include "ckpt/save_content.h"
#include "comm/communicator.h"

namespace fourfold {

struct SaveOptions {
  Retention retention = {};
  double timeout_seconds = 0;  ///< Of a stage; 0: as long as it takes.
  int incarnation = 0;         ///< Of checkpoints, or the next free one (Loaded).
};

/// What became of a save; the same on every rank. What later stages find out is not set where an
/// earlier one failed.
struct SaveReport {
  CheckpointId id;
  std::optional<Error> error;  ///< Why nothing was saved.
  /// Why older checkpoints were left though this one is there.
  std::optional<Error> retention_error;
  std::int64_t bytes = 0;    ///< Of all ranks' tensor files.
  double write_seconds = 0;  ///< The slowest rank's, from the start of its file to its sync.
  double cpu_seconds = 0;    ///< Of all threads of all ranks that worked for it in the background.
};

/// One checkpoint on its way to the disk, in the order of docs/checkpoint_format.md: the folder;
/// every rank's files; the manifest, CURRENT and retention. Each stage is work of threads in the
/// background, which never communicate; the ranks exchange in advance() whether it has ended on
/// all of them.
class SaveTask {
 public:
  /// Writes this rank's files into the folder; runs in the background.
  using WriteFiles = std::function<RankRecords(const std::string& folder)>;

  /// `fs` outlives the task. `passage` is what fault points count. Of `meta` and `content`, rank
  /// 0's are stored. Begins at once.
  SaveTask(Fs& fs, std::string dir, int rank, long passage, CheckpointMeta meta,
           SaveContent content, WriteFiles write, const SaveOptions& options, Log log);

  /// Goes on to the next stage where all ranks have ended theirs, having waited for this rank's at
  /// most that long. Whether all is over. Collective: a few numbers. Throws Error (kData) on all
  /// ranks, that names one, where a stage takes longer than the limit; the work goes on then.
  bool advance(Communicator& world, std::chrono::milliseconds patience);

  /// advance() to the end, with growing patience: the ranks' sign of life while files are written.
  void finish(Communicator& world);

  /// Whether this rank's work has ended, after waiting for it at most that long.
  bool ended_within(std::chrono::milliseconds time) { return !job_ || job_->ended_within(time); }

  /// What came of it, once advance() has said so.
  const SaveReport& report() const { return report_; }
  /// What was saved, without the configuration's file, once report() is of no error.
  const Manifest& manifest() const { return manifest_; }

 private:
  enum class Stage : std::uint8_t { kPrepare, kWrite, kCommit, kCleanUp, kOver };

  void begin(Stage stage, bool mine, std::function<void()> work);
  void next(Communicator& world, std::optional<Error> failed);
  void begin_write(Communicator& world);
  void begin_commit(Communicator& world);
  void apply_retention();
  void begin_clean_up(const Error& error);
  double stage_seconds() const;
  void say_if_slow(std::int32_t slowest_rank);
  std::string folder() const;

  Fs& fs_;
  std::string dir_;
  int rank_;
  long passage_;
  CheckpointMeta meta_;
  SaveContent content_;
  WriteFiles write_;
  SaveOptions options_;
  Log log_;

  Stage stage_ = Stage::kOver;
  double stage_began_ = 0;
  double slow_after_ = 0;
  RankRecords records_;  ///< This rank's.
  Manifest manifest_;
  std::optional<Error> retention_error_;        ///< This rank's.
  double write_seconds_ = 0, cpu_seconds_ = 0;  ///< This rank's.
  SaveReport report_;
  /// This rank's work of the stage, where it has some. Last: the work uses the members above.
  std::unique_ptr<BackgroundJob> job_;
};

}  // namespace fourfold
