#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/tensorboard.h"
#include "train/progress.h"
#include "train/router_record.h"
#include "train/run_folder.h"

namespace fourfold {

/// What rank 0 tells the world of a run: stdout, metrics.jsonl, log.txt, TensorBoard.
class RunOutput {
 public:
  RunOutput(RunFolder& folder, const Progress::Options& options, bool tensorboard)
      : folder_(folder), progress_(options), log_(folder.log()) {
    if (tensorboard) events_.emplace(folder.dir() + "/tb");
  }

  void step(const StepRecord& record) {
    folder_.append_metrics(to_json(record));
    progress_.step(record);
    if (!events_) return;
    events_->add_scalar("train/loss", record.step, record.loss);
    if (record.experts) {
      events_->add_scalar("train/aux_loss", record.step, record.experts->aux_loss);
      events_->add_scalar("train/z_loss", record.step, record.experts->z_loss);
    }
    events_->add_scalar("train/grad_norm", record.step, record.grad_norm);
    events_->add_scalar("train/lr", record.step, record.lr);
    events_->add_scalar("speed/tokens_per_second", record.step, record.tokens_per_second);
    events_->add_scalar("speed/mfu", record.step, record.mfu);
  }
  /// What the routers did in a step, after the step itself; `forced`: balance was.
  void routers(const std::vector<RouterRecord>& records, bool forced) {
    for (const RouterRecord& r : records) {
      const JsonLine line = to_json(r, forced);
      folder_.append_metrics(line);
      progress_.metrics(line);
      if (!events_) continue;
      const std::string prefix = "router/" + std::to_string(r.layer);
      events_->add_scalar(prefix + "/max_over_mean", r.step, r.max_over_mean);
      events_->add_scalar(prefix + "/entropy", r.step, r.entropy);
      events_->add_scalar(prefix + "/dropped", r.step, r.dropped);
    }
  }
  void validation(const ValidationRecord& record) {
    folder_.append_metrics(to_json(record));
    progress_.validation(record);
    if (events_) events_->add_scalar("valid/loss", record.step, record.val_loss);
  }
  void checkpoint(const CheckpointRecord& record) { folder_.append_metrics(to_json(record)); }
  /// A line for people, kept in the log as well.
  void say(const std::string& text) {
    log_.info("{}", text);
    progress_.say(text);
  }
  void finish() { progress_.finish(); }
  const Log& log() const { return log_; }

 private:
  RunFolder& folder_;
  Progress progress_;
  Log log_;
  std::optional<TensorBoardWriter> events_;
};

}  // namespace fourfold
