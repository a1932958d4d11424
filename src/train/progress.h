#pragma once

#include <cstdint>
#include <string>

#include "train/step_record.h"

namespace fourfold {

/// What a person sees of training on stdout: on a terminal one line that is written over, in a pipe
/// a line every log_interval steps, with `json` the metrics lines themselves.
class Progress {
 public:
  struct Options {
    std::int64_t steps = 0;  ///< Of the run.
    std::int64_t log_interval = 1;
    bool json = false;
  };
  explicit Progress(const Options& options);

  void step(const StepRecord& record);
  /// A line of metrics that is for programs alone: with json only.
  void metrics(const JsonLine& line);
  void validation(const ValidationRecord& record);
  /// A line of prose; not with json.
  void say(const std::string& text);
  /// Leaves the live line for good.
  void finish();

 private:
  void clear_live_line();

  Options options_;
  bool terminal_;
  bool colour_;
  bool live_ = false;          ///< A live line is on the screen.
  double smooth_seconds_ = 0;  ///< Of a step, for the time left.
};

}  // namespace fourfold
