#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace fourfold {

/// What one thread of a rank did for a while.
struct TimelineSpan {
  enum class Kind : std::uint8_t {
    kStep,  ///< A whole step; the others lie in it.
    kCompute,
    kCommunicate,  ///< In the main thread: computation stands still.
    kWait,         ///< For an operation that another thread runs.
    kCheckpoint,
  };
  std::string track;  ///< The thread: kMainTrack, or what it is for ("gather z").
  std::string name;
  Kind kind = Kind::kCompute;
  double begin = 0, end = 0;  ///< Of SteadyClock.
  std::int64_t bytes = 0;     ///< Of a communication.
  double cpu = 0;             ///< Of a communication: seconds of its thread's CPU.
};

inline constexpr std::string_view kMainTrack = "main";

/// What all threads of one rank do when, for the picture of a step. Off until start(), and then a
/// look at a flag is all that it costs. Safe from several threads.
class Timeline {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }
  void start();
  /// What was added since start(), in the order of the ends.
  std::vector<TimelineSpan> stop();
  /// Nothing where it is off.
  void add(TimelineSpan span);

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::vector<TimelineSpan> spans_;
};

/// Adds the time of its life, if the timeline is on when it begins. The texts outlive it.
class TimedSpan {
 public:
  /// Its name is "WHAT OF", or WHAT alone.
  TimedSpan(Timeline& timeline, TimelineSpan::Kind kind, std::string_view what,
            std::string_view of = {}, std::string_view track = kMainTrack, std::int64_t bytes = 0);
  TimedSpan(const TimedSpan&) = delete;
  TimedSpan& operator=(const TimedSpan&) = delete;
  ~TimedSpan() {
    if (timeline_) end();
  }

 private:
  void end();

  Timeline* timeline_;  ///< Null: it was off.
  TimelineSpan::Kind kind_;
  std::string_view what_, of_, track_;
  std::int64_t bytes_;
  double begin_ = 0, cpu_began_ = 0;
};

}  // namespace fourfold
