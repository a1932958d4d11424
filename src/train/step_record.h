#pragma once

#include <cstdint>

#include "formats/json_lines.h"

namespace fourfold {

/// One optimizer step as metrics and progress show it.
struct StepRecord {
  std::int64_t step = 0;  ///< Steps done, from 1.
  double loss = 0;        ///< Mean cross-entropy in nats per token.
  double grad_norm = 0;
  double lr = 0;
  std::int64_t tokens = 0;  ///< Trained on since the run's start.
  double tokens_per_second = 0;
  double step_seconds = 0;
  double mfu = 0;  ///< Share of the peak product rate.
  bool skipped = false;
};

/// One evaluation.
struct ValidationRecord {
  std::int64_t step = 0;
  double val_loss = 0;
  std::int64_t tokens = 0;  ///< Trained on so far.
};

/// A line of metrics.jsonl.
JsonLine to_json(const StepRecord& record);
JsonLine to_json(const ValidationRecord& record);

}  // namespace fourfold
