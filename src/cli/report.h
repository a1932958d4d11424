#pragma once

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "base/error.h"
#include "base/launcher.h"

namespace fourfold::cli {

/// Prints "error:" and "hint:" to stderr and gives the exit code. A rank other than 0 says which it
/// is. What is wrong with a run file all ranks of a machine find, so the first of them tells it;
/// another machine may be the one that lacks the file.
inline int report(const Error& error) {
  const auto process = launched_process();
  const bool first_here = !process || process->local_rank.value_or(0) == 0;
  if (error.kind() == ErrorKind::kUsage && !first_here) return error.exit_code();
  std::string who;
  if (process && process->rank != 0) {
    std::array<char, 256> host{};
    gethostname(host.data(), host.size() - 1);
    who = fmt::format("rank {} on {}: ", process->rank, host.data());
  }
  std::fflush(stdout);
  fmt::print(stderr, "error: {}{}\n", who, error.what());
  if (!error.hint().empty()) fmt::print(stderr, "hint: {}\n", error.hint());
  return error.exit_code();
}

/// Runs a command; what it throws is reported and becomes the exit code.
template <class Command>
int guarded(const Command& command) {
  try {
    return command();
  } catch (const Error& error) {
    return report(error);
  } catch (const std::bad_alloc&) {
    return report(Error(ErrorKind::kInternal, "out of memory",
                        "a smaller model, batch or sequence; `train --dry-run` shows the need"));
  } catch (const std::exception& error) {
    return report(Error(ErrorKind::kInternal, error.what()));
  }
}

}  // namespace fourfold::cli
