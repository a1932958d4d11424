#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace fourfold {

/// What went wrong outside the program. The value is the exit code of the process.
enum class ErrorKind {
  kInternal = 1,
  kUsage = 2,          ///< Command line or configuration.
  kData = 3,           ///< Data, or files that the configuration names.
  kCommunication = 4,  ///< A peer died, stopped answering or disagrees.
  kNoCheckpoint = 5,   ///< No usable checkpoint.
  kNumerics = 6,       ///< NaN or infinity, by policy.
  kInterrupted = 75,   ///< Saved after a signal or a time budget; run again.
};

/// A failure of the environment (peer, disk, file, configuration), for the caller to decide on.
/// Broken invariants are not errors: they are FF_CHECKs (check.h). The message is one line of
/// cause; the hint, which may be empty, one line of remedy.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message, std::string hint = "")
      : std::runtime_error(std::move(message)), kind_(kind), hint_(std::move(hint)) {}

  ErrorKind kind() const { return kind_; }
  const std::string& hint() const { return hint_; }
  int exit_code() const { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
  std::string hint_;
};

/// A value or the Error that took its place: returned where failure is an expected answer (a
/// reader, a vote on checkpoints). `value()` throws the Error for callers that expect none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return ok() ? std::get<0>(state_) : throw error(); }
  const T& value() const& { return ok() ? std::get<0>(state_) : throw error(); }
  // By value, so that what a temporary Result held may be looped over.
  T value() && { return ok() ? std::get<0>(std::move(state_)) : throw error(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

/// The Result of an action without a value.
struct Done {};
using Status = Result<Done>;

}  // namespace fourfold
