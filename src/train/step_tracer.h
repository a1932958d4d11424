#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/timeline.h"
#include "comm/communicator.h"

namespace fourfold {

/// Keeps the timeline of some steps of one rank and writes it to the run's folder. The first two
/// steps of a start are left out where there are more: they meet their memory for the first time.
class StepTracer {
 public:
  /// `world` outlives this. `count` steps of [first, end), at most; 0: none.
  StepTracer(std::string run_dir, Communicator& world, int count, std::int64_t first,
             std::int64_t end);

  /// To be called at the beginning of the step. Collective.
  void begin(std::int64_t step);
  /// To be called at its end. Collective.
  void end(std::int64_t step, const Log& log);
  /// Writes what there is, before the last of the steps where training ends early. A file that
  /// cannot be written is a warning. Collective.
  void finish(const Log& log);

 private:
  std::string run_dir_;
  Communicator& world_;
  std::int64_t first_, end_;  ///< The steps that are kept.
  double zero_ = 0;
  double step_began_ = 0;
};

}  // namespace fourfold
