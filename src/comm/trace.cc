#include "comm/trace.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"

namespace fourfold {

TraceRing::TraceRing(int length) : epoch_seconds_(SteadyClock().seconds()) {
  FF_CHECK(length >= 0, "trace of {} operations", length);
  ring_.resize(static_cast<std::size_t>(length));
}

std::uint64_t TraceRing::begin(const Call& call, const std::string& group) {
  if (ring_.empty()) return 0;
  const double now = SteadyClock().seconds() - epoch_seconds_;
  const std::lock_guard lock(mutex_);
  Entry& e = ring_[begun_ % ring_.size()];
  e.kind = call.kind;
  e.lane = call.lane;
  e.state = State::kRunning;
  e.group = group;
  e.seq = call.seq;
  e.step = call.step;
  e.bytes = call.bytes();
  e.start_seconds = now;
  e.seconds = 0;
  return begun_++;
}

void TraceRing::end(std::uint64_t number, bool ok) {
  if (ring_.empty()) return;
  const double now = SteadyClock().seconds() - epoch_seconds_;
  const std::lock_guard lock(mutex_);
  if (number + ring_.size() < begun_) return;  // Overwritten meanwhile.
  Entry& e = ring_[number % ring_.size()];
  e.state = ok ? State::kDone : State::kFailed;
  e.seconds = now - e.start_seconds;
}

std::vector<std::string> TraceRing::lines() const {
  const double now = SteadyClock().seconds() - epoch_seconds_;
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  const std::uint64_t kept = std::min<std::uint64_t>(begun_, ring_.size());
  for (std::uint64_t number = begun_ - kept; number < begun_; ++number) {
    const Entry& e = ring_[number % ring_.size()];
    const char* state = e.state == State::kRunning ? "running for"
                        : e.state == State::kDone  ? "done in"
                                                   : "failed after";
    const double seconds = e.state == State::kRunning ? now - e.start_seconds : e.seconds;
    lines.push_back(fmt::format("{:.6f} s {} #{} over {} step {} {} B lane {}: {} {:.0f} us",
                                e.start_seconds, op_name(e.kind), e.seq, e.group, e.step, e.bytes,
                                lane_name(e.lane), state, seconds * 1e6));
  }
  return lines;
}

}  // namespace fourfold
