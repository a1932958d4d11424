#pragma once

#include "base/clock.h"
#include "ckpt/engine.h"
#include "ckpt/store.h"
#include "data/sampler.h"
#include "train/rank_model.h"
#include "train/run_output.h"
#include "train/signals.h"

namespace fourfold {

/// What all ranks of a process share while training.
struct TrainerShared {
  const RunSpec& run;
  const Sampler& train;
  const WindowReader* valid;  ///< Null: no evaluation.
  const SignalWatch& signals;
  const Clock& clock;
  double started = 0;   ///< When the command began, on the clock.
  int trace_steps = 0;  ///< Steps of which a timeline is kept.
};

/// The training loop of one rank: resume, step, evaluate, save, stop.
class Trainer {
 public:
  /// Collective over `world`. `output` is null on all ranks but 0.
  Trainer(const TrainerShared& shared, RunOutput* output, Communicator& world);

  /// Trains to the end of the run and returns 0, or saves and returns 75 after a signal or when the
  /// time budget is spent. Collective. When it fails, the other ranks are told before anything
  /// else.
  int train();

 private:
  enum class Stop : std::int64_t { kNone = 0, kBudget = 1, kSignal = 2 };

  int train_to_the_end();
  /// What the run goes on from; none: it begins.
  std::optional<Loaded> resume();
  /// Writes what only memory has of the run (write_surviving_copies).
  void rescue_copies();
  void one_step();
  /// Of the step that was just done, and of its routers at the log's interval.
  void report(const StepResult& result, double seconds);
  void evaluate();
  /// Begins a checkpoint, unless this step has one.
  void save();
  /// Carries checkpoints on that are on their way, and hears what became of them.
  void follow_checkpoints();
  /// Until they are on the disk; the last one must get there.
  void finish_checkpoints();
  void hear(const EngineReport& report, bool last);
  bool due(std::int64_t interval) const;
  /// What any rank wants, agreed by all.
  Stop agreed_stop();
  int stop_early(Stop stop);
  CheckpointMeta meta() const;
  /// Refuses a checkpoint of another model; says what keeps the resume from being exact.
  void check_identity(const CheckpointMeta& found);
  void say(const std::string& text);
  /// Rank 0's; the others say nothing.
  Log log() const;

  const TrainerShared& shared_;
  RunOutput* output_;
  const RunSpec& run_;
  Communicator& world_;
  RankModel model_;
  PosixFs fs_;
  CheckpointStore store_;
  std::optional<CheckpointEngine> engine_;  ///< None where checkpoints are off.
  double peak_flops_;
  std::int64_t step_ = 0;  ///< Steps done.
  std::int64_t next_sample_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t saved_step_ = -1;
  std::int64_t evaluated_step_ = -1;
};

}  // namespace fourfold
