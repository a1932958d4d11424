#include "comm/message_communicator.h"

#include <algorithm>

#include "comm/copy.h"
#include "comm/reduce.h"

namespace fourfold {
namespace {

/// Up to this size every rank gets all data of all others in one round: its headers outweigh them.
constexpr std::int64_t kWholeBytes = 256;
/// Up to this size a broadcast goes from the root to everybody.
constexpr std::int64_t kDirectBroadcastBytes = 32 * 1024;
/// A rank's slice per round of a reduction: bounds the memory for its peers' slices, which are
/// added while they are in the cache.
constexpr std::int64_t kSliceBytes = 1 << 20;

std::byte* bytes_of(const void* data) {
  return static_cast<std::byte*>(const_cast<void*>(data));  // Sent slices are only read.
}

}  // namespace

MessageCommunicator::MessageCommunicator(int rank, std::vector<int> members, std::string name,
                                         std::shared_ptr<MessageWorld> world)
    : CallCommunicator(rank, std::move(members), std::move(name), world->context()),
      world_(std::move(world)),
      group_context_(world_->new_context(this->members(), this->name())) {}

std::unique_ptr<Communicator> MessageCommunicator::do_subgroup(std::span<const int> ranks,
                                                               std::string name) {
  const auto mine = std::ranges::find(ranks, rank());
  return std::make_unique<MessageCommunicator>(static_cast<int>(mine - ranks.begin()),
                                               members_of(ranks), std::move(name), world_);
}

void MessageCommunicator::execute(const Call& call) {
  MessageHeader header = make_header(call, group_context_, name());
  switch (call.kind) {
    case OpKind::kAllReduce:
      return call.bytes() <= kWholeBytes ? all_reduce_whole(call, header)
                                         : all_reduce(call, header);
    case OpKind::kAllGather:
      return all_gather(call, header);
    case OpKind::kReduceScatter:
      return reduce_scatter(call, header);
    case OpKind::kAllToAll:
      return all_to_all(call, header);
    case OpKind::kBroadcast:
      return broadcast(call, header);
    case OpKind::kBarrier:
      return barrier(call, header);
    case OpKind::kSend:
    case OpKind::kReceive:
      return pair(call, header);
  }
}

void MessageCommunicator::gather_slices(const Call& call, MessageHeader& header,
                                        const std::vector<Slice>& slices) {
  Exchange exchange(*world_, call, header, name());
  const Slice& mine = slices[static_cast<std::size_t>(rank())];
  for (int i = 1; i < size(); ++i) {
    const int to = (rank() + i) % size(), from = (rank() + size() - i) % size();
    const Slice& theirs = slices[static_cast<std::size_t>(from)];
    exchange.receive(member(from), theirs.data, theirs.bytes);
    exchange.send(member(to), mine.data, mine.bytes);
  }
  exchange.run();
  ++header.part;
}

void MessageCommunicator::reduce_slices(const Call& call, MessageHeader& header,
                                        const std::vector<Slice>& parts, void* result) {
  const Slice& mine = parts[static_cast<std::size_t>(rank())];
  // Every slice begins at a whole cache line, hence at an address fit for every type.
  const auto stride = static_cast<std::size_t>((mine.bytes + 63) / 64 * 64);
  MessageWorld::Memory memory;
  std::vector<std::byte>& scratch = memory.emplace_back(stride * static_cast<std::size_t>(size()));
  std::vector<const void*> in;
  for (int r = 0; r < size(); ++r) {
    in.push_back(r == rank() ? mine.data : scratch.data() + stride * static_cast<std::size_t>(r));
  }
  try {
    Exchange exchange(*world_, call, header, name());
    for (int i = 1; i < size(); ++i) {
      const int to = (rank() + i) % size(), from = (rank() + size() - i) % size();
      exchange.receive(member(from), bytes_of(in[static_cast<std::size_t>(from)]), mine.bytes);
      const Slice& out = parts[static_cast<std::size_t>(to)];
      exchange.send(member(to), out.data, out.bytes);
    }
    exchange.run();
  } catch (...) {
    world_->bury(std::move(memory));  // Messages may still arrive there.
    throw;
  }
  ++header.part;
  reduce_ascending(call.dtype, call.op, in, {{result}}, mine.bytes / dtype_size(call.dtype));
}

void MessageCommunicator::all_reduce_whole(const Call& call, MessageHeader& header) {
  reduce_slices(
      call, header,
      std::vector<Slice>(static_cast<std::size_t>(size()), {bytes_of(call.in), call.bytes()}),
      call.out);
}

void MessageCommunicator::all_reduce(const Call& call, MessageHeader& header) {
  const std::int64_t element = dtype_size(call.dtype);
  const std::int64_t block = kSliceBytes / element * size();
  std::vector<Slice> slices(static_cast<std::size_t>(size()));
  for (std::int64_t begin = 0; begin < call.out_count; begin += block) {
    const std::int64_t count = std::min(block, call.out_count - begin);
    for (int r = 0; r < size(); ++r) {
      const std::int64_t from = begin + count * r / size(), to = begin + count * (r + 1) / size();
      slices[static_cast<std::size_t>(r)] = {bytes_of(call.out) + from * element,
                                             (to - from) * element};
    }
    reduce_slices(call, header, slices, slices[static_cast<std::size_t>(rank())].data);
    gather_slices(call, header, slices);
  }
}

void MessageCommunicator::all_gather(const Call& call, MessageHeader& header) {
  std::vector<Slice> slices;
  std::byte* at = bytes_of(call.out);
  for (const std::int64_t count : call.counts) {
    slices.push_back({at, count * dtype_size(call.dtype)});
    at += slices.back().bytes;
  }
  const Slice& mine = slices[static_cast<std::size_t>(rank())];
  copy_bytes(mine.data, call.in, mine.bytes);
  gather_slices(call, header, slices);
}

void MessageCommunicator::reduce_scatter(const Call& call, MessageHeader& header) {
  const std::int64_t element = dtype_size(call.dtype);
  const std::int64_t block = kSliceBytes / element;
  const std::int64_t longest = *std::ranges::max_element(call.counts);
  std::int64_t begin = 0;
  do {  // At least once: an empty operation is compared with the peers', too.
    std::vector<Slice> parts;
    std::byte* at = bytes_of(call.in);
    for (const std::int64_t count : call.counts) {
      const std::int64_t from = std::min(begin, count), to = std::min(begin + block, count);
      parts.push_back({at + from * element, (to - from) * element});
      at += count * element;
    }
    const std::int64_t mine = std::min(begin, call.out_count);
    reduce_slices(call, header, parts, bytes_of(call.out) + mine * element);
    begin += block;
  } while (begin < longest);
}

void MessageCommunicator::all_to_all(const Call& call, MessageHeader& header) {
  const std::int64_t element = dtype_size(call.dtype);
  Exchange exchange(*world_, call, header, name());
  for (int i = 0; i < size(); ++i) {
    const int r = (rank() + i) % size();
    const auto index = static_cast<std::size_t>(r);
    std::byte* to = bytes_of(call.out) + offset_of(call.counts, r) * element;
    const std::byte* from = bytes_of(call.in) + offset_of(call.send_counts, r) * element;
    if (r == rank()) {
      copy_bytes(to, from, call.counts[index] * element);
    } else {
      exchange.receive(member(r), to, call.counts[index] * element);
      exchange.send(member(r), from, call.send_counts[index] * element);
    }
  }
  exchange.run();
}

void MessageCommunicator::broadcast(const Call& call, MessageHeader& header) {
  if (call.bytes() > kDirectBroadcastBytes) return broadcast_in_slices(call, header);
  Exchange exchange(*world_, call, header, name());
  if (rank() == call.root) {
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) exchange.send(member(r), call.in, call.bytes());
    }
  } else {
    exchange.receive(member(call.root), call.out, call.bytes());
  }
  exchange.run();
}

/// The root gives each rank a slice, and the ranks give theirs to each other, so that the root does
/// not send everything to everybody.
void MessageCommunicator::broadcast_in_slices(const Call& call, MessageHeader& header) {
  std::vector<Slice> slices;
  for (int r = 0; r < size(); ++r) {
    const std::int64_t from = call.bytes() / size() * r;
    const std::int64_t to = r + 1 == size() ? call.bytes() : call.bytes() / size() * (r + 1);
    slices.push_back({bytes_of(call.out) + from, to - from});
  }
  const Slice& mine = slices[static_cast<std::size_t>(rank())];
  Exchange scatter(*world_, call, header, name());
  for (int r = 0; r < size(); ++r) {
    const Slice& theirs = slices[static_cast<std::size_t>(r)];
    if (rank() == call.root && r != rank()) scatter.send(member(r), theirs.data, theirs.bytes);
  }
  if (rank() != call.root) scatter.receive(member(call.root), mine.data, mine.bytes);
  scatter.run();
  ++header.part;
  Exchange gather(*world_, call, header, name());
  for (int i = 1; i < size(); ++i) {
    const int to = (rank() + i) % size(), from = (rank() + size() - i) % size();
    const Slice& theirs = slices[static_cast<std::size_t>(from)];
    if (rank() != call.root) gather.receive(member(from), theirs.data, theirs.bytes);
    if (to != call.root) gather.send(member(to), mine.data, mine.bytes);
  }
  gather.run();
}

void MessageCommunicator::barrier(const Call& call, MessageHeader& header) {
  gather_slices(call, header,
                std::vector<Slice>(static_cast<std::size_t>(size()), Slice{nullptr, 0}));
}

void MessageCommunicator::pair(const Call& call, MessageHeader& header) {
  Exchange exchange(*world_, call, header, name());
  if (call.kind == OpKind::kSend) {
    exchange.send(member(call.root), call.in, call.bytes());
  } else {
    exchange.receive(member(call.root), call.out, call.bytes());
  }
  exchange.run();
}

}  // namespace fourfold
