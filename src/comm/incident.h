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

/// A thread cannot be ended from outside, so one that is stuck takes the process with it: prints
/// the failure and what is stuck, and ends the process with the exit code of the failure.
[[noreturn]] void end_process(const std::exception_ptr& failure, const std::string& stuck);

}  // namespace fourfold
