#include "base/timeline.h"

#include <utility>

#include "base/clock.h"

namespace fourfold {

void Timeline::start() {
  const std::lock_guard lock(mutex_);
  spans_.clear();
  on_ = true;
}

std::vector<TimelineSpan> Timeline::stop() {
  const std::lock_guard lock(mutex_);
  on_ = false;
  return std::exchange(spans_, {});
}

void Timeline::add(TimelineSpan span) {
  const std::lock_guard lock(mutex_);
  if (on_) spans_.push_back(std::move(span));
}

TimedSpan::TimedSpan(Timeline& timeline, TimelineSpan::Kind kind, std::string_view what,
                     std::string_view of, std::string_view track, std::int64_t bytes)
    : timeline_(timeline.on() ? &timeline : nullptr),
      kind_(kind),
      what_(what),
      of_(of),
      track_(track),
      bytes_(bytes) {
  if (!timeline_) return;
  if (kind == TimelineSpan::Kind::kCommunicate) cpu_began_ = thread_cpu_seconds();
  begin_ = SteadyClock().seconds();
}

void TimedSpan::end() {
  std::string name(what_);
  if (!of_.empty()) name.append(" ").append(of_);
  const double now = SteadyClock().seconds();
  const bool measures = kind_ == TimelineSpan::Kind::kCommunicate;
  timeline_->add({std::string(track_), std::move(name), kind_, begin_, now, bytes_,
                  measures ? thread_cpu_seconds() - cpu_began_ : 0});
}

}  // namespace fourfold
