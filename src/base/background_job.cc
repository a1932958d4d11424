#include "base/background_job.h"

#include <string>
#include <system_error>
#include <utility>

#include "base/clock.h"

namespace fourfold {

BackgroundJob::BackgroundJob(std::function<void()> work) : work_(std::move(work)) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    error_ = Error(ErrorKind::kInternal, std::string("no thread can be made: ") + error.what(),
                   "raise the limit of processes (ulimit -u)");
    ended_ = true;
  }
}

BackgroundJob::~BackgroundJob() {
  if (thread_.joinable()) thread_.join();
}

bool BackgroundJob::ended_within(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return ended_now_.wait_for(lock, time, [&] { return ended_; });
}

void BackgroundJob::wait() {
  std::unique_lock lock(mutex_);
  ended_now_.wait(lock, [&] { return ended_; });
}

std::optional<Error> BackgroundJob::error() {
  wait();
  return error_;
}

double BackgroundJob::cpu_seconds() {
  wait();
  return cpu_seconds_;
}

void BackgroundJob::run() noexcept {
  std::optional<Error> error;
  try {
    work_();
  } catch (const Error& thrown) {
    error = thrown;
  } catch (const std::exception& thrown) {
    error = Error(ErrorKind::kInternal, thrown.what());
  }
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
  cpu_seconds_ = thread_cpu_seconds();
  ended_ = true;
  ended_now_.notify_all();
}

}  // namespace fourfold
