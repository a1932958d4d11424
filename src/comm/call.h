#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "comm/communicator.h"

namespace fourfold {

enum class OpKind : std::uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kSend,
  kReceive,
  kBarrier,
};

std::string_view op_name(OpKind kind);
std::string_view lane_name(Lane lane);

/// One rank's call of one operation: what is done, checked, traced and named in errors. The buffers
/// and counts are the caller's and outlive the operation.
struct Call {
  OpKind kind = OpKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  DType dtype = DType::kU8;
  Lane lane = Lane::kCaller;
  int channel = 0;        ///< channel_of() the group's lane.
  int root = -1;          ///< Of a broadcast; the peer of a send or receive. A rank of the group.
  std::int64_t seq = 0;   ///< Number of the collective in its group and lane, from 0; sends and
                          ///< receives are counted apart, by each rank for itself.
  std::int64_t step = 0;  ///< The trainer's step when it was called.
  const void* in = nullptr;
  void* out = nullptr;        ///< The same as `in` for operations in place.
  std::int64_t in_count = 0;  ///< Elements.
  std::int64_t out_count = 0;
  std::span<const std::int64_t> counts{};       ///< Per rank; of an all-to-all, what is received.
  std::span<const std::int64_t> send_counts{};  ///< Of an all-to-all.

  std::int64_t bytes() const;
};

/// "all_reduce #12 over x (step 3, sum of 1000 F32)".
std::string describe(const Call& call, std::string_view group);

/// The Error of an all-to-all or send whose counts differ between two ranks, and of any operation
/// that two ranks call differently: names what both call. Ranks are world ranks.
Error mismatch_error(int rank_a, const std::string& call_a, int rank_b, const std::string& call_b);

/// The Error of a wait that lasted longer than `seconds`; `missing` are world ranks.
Error timeout_error(const Call& call, std::string_view group, const std::vector<int>& missing,
                    double seconds);

/// The Error of a rank that waits for, or would wait for, a group that rank `failed` has ended;
/// failed is -1 where it is not known. `missing` are the world ranks that it waited for: the rank
/// that failed may have waited for this one, and they are then the cause.
Error aborted_error(const Call& call, std::string_view group, int failed, const std::string& reason,
                    const std::vector<int>& missing);

/// "rank 3", "ranks 1, 4 and 5".
std::string rank_list(const std::vector<int>& ranks);

/// Whether two ranks of a group call the same operation with sizes that fit. The pairwise counts of
/// an all-to-all are not compared here.
bool same_call(const Call& a, const Call& b);

}  // namespace fourfold
