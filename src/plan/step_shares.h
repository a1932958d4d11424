#pragma once

#include <vector>

#include "base/timeline.h"

namespace fourfold {

/// Where the time of a step went, in seconds, on one rank. Communication that runs while the main
/// thread computes is hidden, the rest is exposed.
struct StepShares {
  double step = 0;
  double compute = 0;     ///< The step without the two below.
  double exposed = 0;     ///< The main thread communicates, or waits for a lane.
  double checkpoint = 0;  ///< The main thread is held up by checkpoints.
  double hidden = 0;      ///< A lane communicates while the main thread goes on.
};

/// Of the step that `step`, a span of kind kStep, covers.
StepShares step_shares(const std::vector<TimelineSpan>& spans, const TimelineSpan& step);

}  // namespace fourfold
