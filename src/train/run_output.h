#pragma once

#include <string>

#include "train/progress.h"
#include "train/run_folder.h"

namespace fourfold {

/// What rank 0 tells the world of a run: stdout, metrics.jsonl, log.txt.
class RunOutput {
 public:
  RunOutput(RunFolder& folder, const Progress::Options& options)
      : folder_(folder), progress_(options), log_(folder.log()) {}

  void step(const StepRecord& record) {
    folder_.append_metrics(to_json(record));
    progress_.step(record);
  }
  void validation(const ValidationRecord& record) {
    folder_.append_metrics(to_json(record));
    progress_.validation(record);
  }
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
};

}  // namespace fourfold
