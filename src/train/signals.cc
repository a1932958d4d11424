#include "train/signals.h"

#include <signal.h>
#include <unistd.h>

namespace fourfold {
namespace {

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int s : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set, s);
  return set;
}

/// How long the destructor may have to wait for the thread.
constexpr long kPollNanoseconds = 50'000'000;

}  // namespace

SignalWatch::SignalWatch() {
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { watch(); });
}

SignalWatch::~SignalWatch() {
  ending_ = true;
  thread_.join();
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void SignalWatch::watch() {
  const sigset_t set = watched_signals();
  const timespec poll{0, kPollNanoseconds};
  while (!ending_) {
    const int signal = sigtimedwait(&set, nullptr, &poll);
    if (signal <= 0) continue;
    if (received_.exchange(signal) != 0) _exit(128 + signal);
  }
}

}  // namespace fourfold
