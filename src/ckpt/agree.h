#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace fourfold {

// How the ranks stay together over work on files, which fails on one rank and takes longer on
// another. All are collective over `world`; a failing communicator throws its Error.

/// Every rank gets the first failing rank's error, whose message then begins with that rank and its
/// host; none where no rank failed.
std::optional<Error> agree(Communicator& world, const std::optional<Error>& mine);

/// Runs `work` on every rank, in a thread of its own, while the calling threads tell each other
/// that they are there: it may take longer than the communicator's time-out. What it throws is
/// agreed on. `work` does not use the communicator.
std::optional<Error> run_together(Communicator& world, const std::function<void()>& work);

/// The same where only rank 0 has work to do.
std::optional<Error> run_on_first(Communicator& world, const std::function<void()>& work);

/// Rank 0's numbers for everybody, however many they are.
std::vector<std::int64_t> broadcast_numbers(Communicator& world, std::vector<std::int64_t> numbers);

/// Each rank's `mine.size()` numbers (the same count on all), one rank's after the other's.
std::vector<std::int64_t> gather_numbers(Communicator& world, std::span<const std::int64_t> mine);

}  // namespace fourfold
