#pragma once

#include <memory>
#include <utility>

namespace fourfold {

/// What an operation in flight shares with its handle; backends derive from it.
class WorkState {
 public:
  virtual ~WorkState() = default;
  virtual bool done() const = 0;
  /// Returns when the operation is done; throws its Error, or one that names it when the
  /// communicator's time-out passes first.
  virtual void wait() = 0;
  /// wait() for a handle that nobody waits for: keeps the error for the next operation.
  virtual void drop() noexcept = 0;
};

/// The handle of an operation in flight, and the owner of the claim on its buffers: until it has
/// been waited for, they belong to the operation. A handle that dies unwaited waits, and its error
/// comes from the next operation of that rank. A default-made Work is done.
class [[nodiscard]] Work {
 public:
  Work() = default;
  explicit Work(std::unique_ptr<WorkState> state) : state_(std::move(state)) {}
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept {
    if (this != &other) {
      finish();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  ~Work() { finish(); }

  bool done() const { return !state_ || state_->done(); }
  /// Blocks the calling thread until the buffers are its own again. Throws Error.
  void wait_host() {
    if (auto state = std::move(state_)) state->wait();
  }
  /// Orders what the calling thread's device stream runs next behind the operation; on a CPU there
  /// is no stream, so this is wait_host().
  void wait_stream() { wait_host(); }

 private:
  void finish() noexcept {
    if (auto state = std::move(state_)) state->drop();
  }
  std::unique_ptr<WorkState> state_;
};

}  // namespace fourfold
