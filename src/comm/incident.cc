#include "comm/incident.h"

#include <fmt/core.h>

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

}  // namespace fourfold
