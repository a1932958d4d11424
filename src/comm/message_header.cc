#include "comm/message_header.h"

#include <algorithm>
#include <cstring>

namespace fourfold {
namespace {

std::uint64_t hash_counts(std::span<const std::int64_t> counts) {
  std::uint64_t hash = counts.size();
  for (const std::int64_t c : counts) {
    hash = (hash ^ static_cast<std::uint64_t>(c)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

MessageHeader make_header(const Call& call, std::uint64_t context, const std::string& group) {
  MessageHeader header;
  header.kind = call.kind;
  header.op = call.op;
  header.dtype = call.dtype;
  header.root = call.root;
  header.context = context;
  header.seq = call.seq;
  header.step = call.step;
  header.in_count = call.in_count;
  header.out_count = call.out_count;
  if (call.kind != OpKind::kAllToAll) header.counts_hash = hash_counts(call.counts);
  header.shown = static_cast<std::uint8_t>(std::min(call.counts.size(), MessageHeader::kShown));
  std::copy_n(call.counts.begin(), header.shown, header.counts.begin());
  if (!call.send_counts.empty()) {
    std::copy_n(call.send_counts.begin(), header.shown, header.send_counts.begin());
  }
  group.copy(header.group.data(), header.group.size() - 1);
  return header;
}

bool same_operation(const MessageHeader& theirs, const MessageHeader& mine) {
  if (theirs.context != mine.context || theirs.step != mine.step || theirs.part != mine.part ||
      theirs.dtype != mine.dtype) {
    return false;
  }
  if (mine.kind == OpKind::kReceive) {
    return theirs.kind == OpKind::kSend && theirs.in_count == mine.out_count;
  }
  if (theirs.kind != mine.kind || theirs.seq != mine.seq || theirs.op != mine.op ||
      theirs.root != mine.root || theirs.counts_hash != mine.counts_hash) {
    return false;
  }
  const bool own_counts = mine.kind == OpKind::kAllGather || mine.kind == OpKind::kReduceScatter ||
                          mine.kind == OpKind::kAllToAll;  // Those of the list were compared.
  return own_counts || theirs.out_count == mine.out_count;
}

std::string describe(const MessageHeader& header) {
  if (header.magic != MessageHeader::kMagic) return "an operation whose data are out of order";
  Call call;
  call.kind = header.kind;
  call.op = header.op;
  call.dtype = header.dtype;
  call.root = header.root;
  call.seq = header.seq;
  call.step = header.step;
  call.in_count = header.in_count;
  call.out_count = header.out_count;
  call.counts = std::span(header.counts).first(header.shown);
  if (header.kind == OpKind::kAllToAll) {
    call.send_counts = std::span(header.send_counts).first(header.shown);
  }
  return describe(call, header.group.data());
}

}  // namespace fourfold
