#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "comm/call.h"

namespace fourfold {

/// The last operations of one rank, for incident reports. Its lanes' threads write to it, too.
class TraceRing {
 public:
  /// `length` 0 keeps nothing.
  explicit TraceRing(int length);

  /// Returns the operation's number, for end().
  std::uint64_t begin(const Call& call, const std::string& group);
  void end(std::uint64_t number, bool ok);

  /// A line each, oldest first: "12.034567 s all_reduce #12 over x step 3 4096 B lane caller: done
  /// in 153 us". Seconds count from the rank's start.
  std::vector<std::string> lines() const;

 private:
  enum class State : std::uint8_t { kRunning, kDone, kFailed };
  struct Entry {
    OpKind kind;
    Lane lane;
    State state;
    std::string group;
    std::int64_t seq, step, bytes;
    double start_seconds, seconds;
  };

  const double epoch_seconds_;
  mutable std::mutex mutex_;
  std::vector<Entry> ring_;
  std::uint64_t begun_ = 0;  ///< Operations so far; the ring holds the last of them.
};

}  // namespace fourfold
