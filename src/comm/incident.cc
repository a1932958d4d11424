#include "comm/incident.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

namespace fourfold {

std::string incident_report(const Communicator& communicator, const Error& error) {
  std::string report =
      fmt::format("communication failed on rank {} of {} ({})\n  cause: {}\n", communicator.rank(),
                  communicator.size(), communicator.name(), error.what());
  if (!error.hint().empty()) report += fmt::format("  hint: {}\n", error.hint());
  const std::vector<std::string> lines = communicator.trace();
  report += fmt::format("  last {} operations of this rank:\n", lines.size());
  for (const std::string& line : lines) report += fmt::format("    {}\n", line);
  return report;
}

std::string reason_of(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

void end_process(const std::exception_ptr& failure, const std::string& stuck) {
  int code = static_cast<int>(ErrorKind::kInternal);
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    code = error.exit_code();
    fmt::print(stderr, "error: {}\n", error.what());
    if (!error.hint().empty()) fmt::print(stderr, "hint: {}\n", error.hint());
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
  }
  fmt::print(stderr, "error: {}; the process ends without it\n", stuck);
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace fourfold
