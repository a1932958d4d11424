#pragma once

#include <coroutine>
#include <deque>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"

namespace fourfold {

// Functions that can stand still in the middle, so that several passes through the same program
// take turns on one thread: what one waits for goes on while the others compute.

template <class T>
class Async;

namespace async_detail {

/// What any frame knows: who goes on after it, and where the root's chain of calls stands.
struct Promise {
  std::coroutine_handle<> caller = std::noop_coroutine();
  std::coroutine_handle<>* innermost = nullptr;  ///< The root's.
  std::exception_ptr error;

  /// Nothing runs before it is awaited or resumed.
  std::suspend_always initial_suspend() noexcept { return {}; }
  struct ToCaller {
    bool await_ready() noexcept { return false; }
    template <class P>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<P> ended) noexcept {
      return ended.promise().caller;
    }
    void await_resume() noexcept {}
  };
  ToCaller final_suspend() noexcept { return {}; }
  void unhandled_exception() { error = std::current_exception(); }
  void rethrow() const {
    if (error) std::rethrow_exception(error);
  }
};

template <class T>
struct ValuePromise : Promise {
  std::optional<T> value;
  template <class U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T take() {
    rethrow();
    return std::move(*value);
  }
};

template <>
struct ValuePromise<void> : Promise {
  void return_void() {}
  void take() const { rethrow(); }
};

}  // namespace async_detail

/// A call of such a function, which runs when it is awaited: `co_await f(x)` as soon as it is made,
/// so that what its reference parameters refer to lives as long as it must. Errors come out of the
/// co_await.
template <class T>
class [[nodiscard]] Async {
 public:
  struct promise_type : async_detail::ValuePromise<T> {
    Async get_return_object() { return Async(Handle::from_promise(*this)); }
  };
  using Handle = std::coroutine_handle<promise_type>;

  Async(Async&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Async& operator=(Async&&) = delete;
  ~Async() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const noexcept { return false; }
  template <class P>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<P> caller) noexcept {
    handle_.promise().caller = caller;
    handle_.promise().innermost = caller.promise().innermost;
    return handle_;
  }
  T await_resume() { return handle_.promise().take(); }

 private:
  template <class U>
  friend class AsyncRun;
  explicit Async(Handle handle) : handle_(handle) {}
  Handle handle_;
};

/// `co_await StandStill(f)`: gives the turn away; f() is called when it comes back.
template <class F>
class StandStill {
 public:
  explicit StandStill(F after) : after_(std::move(after)) {}
  bool await_ready() const noexcept { return false; }
  template <class P>
  void await_suspend(std::coroutine_handle<P> here) noexcept {
    *here.promise().innermost = here;
  }
  auto await_resume() { return after_(); }

 private:
  F after_;
};

/// The outermost call, driven by its owner.
template <class T>
class AsyncRun {
 public:
  explicit AsyncRun(Async<T> call) : call_(std::move(call)), innermost_(call_.handle_) {}
  AsyncRun(const AsyncRun&) = delete;
  AsyncRun& operator=(const AsyncRun&) = delete;

  bool done() const { return call_.handle_.done(); }
  /// Goes on until it stands still or ends.
  void resume() {
    FF_CHECK(!done(), "resumed after its end");
    call_.handle_.promise().innermost = &innermost_;
    innermost_.resume();
  }
  /// Throws what the call threw.
  void rethrow() const { call_.handle_.promise().rethrow(); }
  /// The result, once done; throws what the call threw.
  T take() { return call_.handle_.promise().take(); }

 private:
  Async<T> call_;
  std::coroutine_handle<> innermost_;
};

/// Runs a call to its end.
template <class T>
T run_to_end(Async<T> call) {
  AsyncRun<T> run(std::move(call));
  while (!run.done()) run.resume();
  return run.take();
}

/// Gives each that has not ended its turn; whether some still have not. Throws what one threw.
template <class T>
bool one_turn(std::deque<AsyncRun<T>>& runs) {
  bool going = false;
  for (AsyncRun<T>& run : runs) {
    if (run.done()) continue;
    run.resume();
    run.rethrow();
    going = going || !run.done();
  }
  return going;
}

/// Runs calls to their ends in turn inside of another: when each has had its turn, that one gives
/// its own away. An error ends the others where they stand.
inline Async<void> all_in_turn(std::vector<Async<void>> calls) {
  std::deque<AsyncRun<void>> runs;
  for (Async<void>& call : calls) runs.emplace_back(std::move(call));
  while (one_turn(runs)) co_await StandStill([] {});
}

/// Runs calls to their ends in turn: each goes on until it stands still, then the next does. The
/// results in the order of the calls. An error ends the others where they stand.
template <class T>
std::vector<T> run_in_turn(std::vector<Async<T>> calls) {
  std::deque<AsyncRun<T>> runs;
  for (Async<T>& call : calls) runs.emplace_back(std::move(call));
  while (one_turn(runs)) {
  }
  std::vector<T> results;
  for (AsyncRun<T>& run : runs) results.push_back(run.take());
  return results;
}

}  // namespace fourfold
