#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "comm/call.h"

namespace fourfold {

/// What goes before the data of every message: enough for the receiver to see whether both ranks
/// are at the same operation, and to name the sender's if not. All ranks run one build, so it
/// travels as it lies in memory.
struct MessageHeader {
  static constexpr std::uint32_t kMagic = 0x34464646;
  static constexpr std::size_t kShown = 8;

  std::uint32_t magic = kMagic;
  OpKind kind{};
  ReduceOp op{};
  DType dtype{};
  std::uint8_t shown = 0;  ///< How many of the counts are here.
  std::int32_t root = -1;
  std::int32_t part = 0;  ///< Number of the exchange within the operation.
  std::uint64_t context = 0;
  std::uint64_t counts_hash = 0;
  std::int64_t seq = 0, step = 0, in_count = 0, out_count = 0;
  std::int64_t payload_bytes = 0;
  std::array<std::int64_t, kShown> counts{}, send_counts{};
  std::array<char, 48> group{};
};

MessageHeader make_header(const Call& call, std::uint64_t context, const std::string& group);

/// Whether the sender of `theirs` is at the operation whose own header is `mine`. For a send and
/// its receive, whether they are one pair.
bool same_operation(const MessageHeader& theirs, const MessageHeader& mine);

/// The sender's call, as describe() names it.
std::string describe(const MessageHeader& header);

}  // namespace fourfold
