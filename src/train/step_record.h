#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "formats/json_lines.h"

namespace fourfold {

/// What the routers of a model with experts did in a step.
struct ExpertsRecord {
  double aux_loss = 0;       ///< What the balance of all layers added to the loss.
  double z_loss = 0;         ///< What their z-loss added.
  double max_over_mean = 0;  ///< Tokens of the busiest expert over the mean, in the worst layer.
  bool forced = false;       ///< Experts were taken in turn: the step measures speed alone.
};

/// One optimizer step as metrics and progress show it.
struct StepRecord {
  std::int64_t step = 0;  ///< Steps done, from 1.
  double loss = 0;        ///< Mean cross-entropy in nats per token, without the routers' losses.
  double grad_norm = 0;
  double lr = 0;
  std::int64_t tokens = 0;  ///< Trained on since the run's start.
  double tokens_per_second = 0;
  double step_seconds = 0;
  double mfu = 0;  ///< Share of the peak product rate.
  /// What checkpoints took of this rank's main thread since the step before: a wait of this step's
  /// update for a copy (which step_seconds has too), and the boundary before the step.
  double checkpoint_seconds = 0;
  bool skipped = false;
  std::optional<ExpertsRecord> experts;  ///< None for a dense model.
};

/// One evaluation.
struct ValidationRecord {
  std::int64_t step = 0;
  double val_loss = 0;
  std::int64_t tokens = 0;  ///< Trained on so far.
};

/// A checkpoint that was committed.
struct CheckpointRecord {
  std::int64_t step = 0;
  std::string name;          ///< Of its folder.
  std::int64_t bytes = 0;    ///< Of all ranks.
  double copy_seconds = 0;   ///< Rank 0's copy, beside forward and backward.
  double write_seconds = 0;  ///< The slowest rank's.
  double held_seconds = 0;   ///< Of rank 0's main thread.
  double cpu_seconds = 0;    ///< Of all threads in the background, of all ranks.
};

/// A line of metrics.jsonl.
JsonLine to_json(const StepRecord& record);
JsonLine to_json(const ValidationRecord& record);
JsonLine to_json(const CheckpointRecord& record);

}  // namespace fourfold
