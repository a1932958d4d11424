#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace fourfold {

/// How much of the suite runs.
struct SuiteOptions {
  bool large = true;             ///< The operations on ten million elements.
  std::int64_t longest = 65537;  ///< Of the other sizes.
};

/// Runs every operation of the communicator, on every type, reduction and size, in every form, and
/// compares each result, bit by bit, with sums made here by a plain loop in ascending rank. Throws
/// std::runtime_error that says what differs. Collective; returns a checksum of all results of this
/// rank, which is the same on every backend.
std::uint32_t run_collective_suite(Communicator& world, const SuiteOptions& options = {});

// Parts of the suite in files of their own (lane_suite.cc).
namespace suite {

/// begin, begin + step, ... below end.
std::vector<int> range(int begin, int end, int step = 1);
void lanes_apart(Communicator& world);
void many_groups(Communicator& world);

}  // namespace suite

}  // namespace fourfold
