#include "comm/call.h"

#include <fmt/core.h>

#include <algorithm>

namespace fourfold {
namespace {

std::string_view reduce_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kAvg:
      return "avg";
  }
  return "?";
}

/// The first few counts: enough to see which one differs.
std::string count_list(std::span<const std::int64_t> counts) {
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(counts.size(), kShown); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : "+", counts[i]);
  }
  return counts.size() > kShown ? text + "+..." : text;
}

std::string what(const Call& call) {
  const std::string_view type = dtype_name(call.dtype);
  switch (call.kind) {
    case OpKind::kAllReduce:
      return fmt::format("{} of {} {}", reduce_name(call.op), call.out_count, type);
    case OpKind::kAllGather:
      return fmt::format("{} {}", count_list(call.counts), type);
    case OpKind::kReduceScatter:
      return fmt::format("{} of {} {}", reduce_name(call.op), count_list(call.counts), type);
    case OpKind::kAllToAll:
      return fmt::format("sends {}, receives {} {}", count_list(call.send_counts),
                         count_list(call.counts), type);
    case OpKind::kBroadcast:
      return fmt::format("{} {} from {}", call.out_count, type, call.root);
    case OpKind::kSend:
      return fmt::format("{} {} to {}", call.in_count, type, call.root);
    case OpKind::kReceive:
      return fmt::format("{} {} from {}", call.out_count, type, call.root);
    case OpKind::kBarrier:
      return "";
  }
  return "";
}

}  // namespace

std::string_view op_name(OpKind kind) {
  switch (kind) {
    case OpKind::kAllReduce:
      return "all_reduce";
    case OpKind::kAllGather:
      return "all_gather";
    case OpKind::kReduceScatter:
      return "reduce_scatter";
    case OpKind::kAllToAll:
      return "all_to_all";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kSend:
      return "send";
    case OpKind::kReceive:
      return "receive";
    case OpKind::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string_view lane_name(Lane lane) {
  switch (lane) {
    case Lane::kCaller:
      return "caller";
    case Lane::kGather:
      return "gather";
    case Lane::kReduce:
      return "reduce";
    case Lane::kScatter:
      return "scatter";
  }
  return "?";
}

std::int64_t Call::bytes() const { return std::max(in_count, out_count) * dtype_size(dtype); }

std::string describe(const Call& call, std::string_view group) {
  const std::string detail = what(call);
  const std::string lane =
      call.lane == Lane::kCaller ? "" : fmt::format(", lane {}", lane_name(call.lane));
  return fmt::format("{} #{} over {} (step {}{}{}{})", op_name(call.kind), call.seq, group,
                     call.step, detail.empty() ? "" : ", ", detail, lane);
}

std::string rank_list(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank";
  std::string text = fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", ranks[0]);
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    text += fmt::format("{}{}", i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  }
  return text;
}

Error mismatch_error(int rank_a, const std::string& call_a, int rank_b, const std::string& call_b) {
  return Error(ErrorKind::kCommunication,
               fmt::format("ranks disagree: rank {} calls {}, rank {} calls {}", rank_a, call_a,
                           rank_b, call_b),
               "every rank of a group calls the same operations in the same order, with the same "
               "sizes and step");
}

Error timeout_error(const Call& call, std::string_view group, const std::vector<int>& missing,
                    double seconds) {
  return Error(
      ErrorKind::kCommunication,
      fmt::format("{}: {} did not arrive within {:g} s", describe(call, group), rank_list(missing),
                  seconds),
      fmt::format("see the log of {}: dead, stopped, or on another path; if it is only slow, raise "
                  "comm.timeout_seconds",
                  rank_list(missing)));
}

Error aborted_error(const Call& call, std::string_view group, int failed, const std::string& reason,
                    const std::vector<int>& missing) {
  const std::string who = failed < 0 ? "a rank" : fmt::format("rank {}", failed);
  const std::string here =
      missing.empty() ? "" : fmt::format("; {} had not arrived here", rank_list(missing));
  return Error(ErrorKind::kCommunication,
               fmt::format("{}: {} failed first: {}{}", describe(call, group), who, reason, here),
               fmt::format("the cause is in the log of {}", who));
}

bool same_call(const Call& a, const Call& b) {
  if (a.kind != b.kind || a.step != b.step || a.seq != b.seq) return false;
  switch (a.kind) {
    case OpKind::kBarrier:
      return true;
    case OpKind::kAllReduce:
      return a.op == b.op && a.dtype == b.dtype && a.out_count == b.out_count;
    case OpKind::kBroadcast:
      return a.root == b.root && a.dtype == b.dtype && a.out_count == b.out_count;
    case OpKind::kReduceScatter:
      return a.op == b.op && a.dtype == b.dtype && std::ranges::equal(a.counts, b.counts);
    case OpKind::kAllGather:
      return a.dtype == b.dtype && std::ranges::equal(a.counts, b.counts);
    case OpKind::kAllToAll:
    case OpKind::kSend:
    case OpKind::kReceive:
      return a.dtype == b.dtype;
  }
  return false;
}

}  // namespace fourfold
