#include "plan/step_shares.h"

#include <algorithm>
#include <utility>

namespace fourfold {
namespace {

using Kind = TimelineSpan::Kind;
using Interval = std::pair<double, double>;

/// What the intervals cover together, as intervals apart and in order.
std::vector<Interval> united(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> apart;
  for (const Interval& i : intervals) {
    if (!apart.empty() && i.first <= apart.back().second) {
      apart.back().second = std::max(apart.back().second, i.second);
    } else {
      apart.push_back(i);
    }
  }
  return apart;
}

/// What of the spans that `wanted` takes lies in the step.
template <class Wanted>
std::vector<Interval> covered(const std::vector<TimelineSpan>& spans, const TimelineSpan& step,
                              Wanted wanted) {
  std::vector<Interval> intervals;
  for (const TimelineSpan& span : spans) {
    const Interval i{std::max(span.begin, step.begin), std::min(span.end, step.end)};
    if (i.first < i.second && wanted(span)) intervals.push_back(i);
  }
  return united(std::move(intervals));
}

double length(const std::vector<Interval>& intervals) {
  double sum = 0;
  for (const auto& [begin, end] : intervals) sum += end - begin;
  return sum;
}

/// What both cover.
double common(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  std::vector<Interval> both = a;
  both.insert(both.end(), b.begin(), b.end());
  return length(a) + length(b) - length(united(std::move(both)));
}

}  // namespace

StepShares step_shares(const std::vector<TimelineSpan>& spans, const TimelineSpan& step) {
  const auto checkpoint = covered(spans, step, [](const TimelineSpan& s) {
    return s.track == kMainTrack && s.kind == Kind::kCheckpoint;
  });
  const auto stands = covered(spans, step, [](const TimelineSpan& s) {
    return s.track == kMainTrack && (s.kind == Kind::kCommunicate || s.kind == Kind::kWait);
  });
  const auto lanes = covered(spans, step, [](const TimelineSpan& s) {
    return s.track != kMainTrack && s.kind == Kind::kCommunicate;
  });
  StepShares shares;
  shares.step = step.end - step.begin;
  shares.checkpoint = length(checkpoint);
  // The ranks' exchange about a checkpoint is a part of the checkpoint.
  shares.exposed = length(stands) - common(stands, checkpoint);
  shares.compute = shares.step - shares.exposed - shares.checkpoint;
  shares.hidden = length(lanes) - common(lanes, stands);
  return shares;
}

}  // namespace fourfold
