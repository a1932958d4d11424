#pragma once

#include <exception>
#include <string>

#include "base/error.h"
#include "comm/communicator.h"

namespace fourfold {

/// What a rank writes to its log when communication fails, several lines: who it is, the error, the
/// hint, and the last operations of the rank, of which those still running are what it hangs in.
std::string incident_report(const Communicator& communicator, const Error& error);

/// What an exception says, for the other ranks.
std::string reason_of(const std::exception_ptr& exception);

}  // namespace fourfold
