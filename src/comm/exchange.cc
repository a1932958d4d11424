#include "comm/exchange.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>

#include "comm/incident.h"

namespace fourfold {
namespace {

/// Header and data of a message up to this size travel together; within the size that MPI libraries
/// send without asking the receiver first.
constexpr std::int64_t kHeadBytes = 4000;
constexpr std::int64_t kHeaderBytes = sizeof(MessageHeader);

bool travels_with_header(std::int64_t bytes) { return bytes <= kHeadBytes - kHeaderBytes; }

/// How a wait spends its time. Messages make progress only while somebody asks for them, so it asks
/// again and again. The caller's thread has nothing better to do: it spins a little, lets other
/// threads run a few times, then sleeps. A lane's thread shares a core with computation, which each
/// look at the network interrupts: it sleeps at once, longer the longer it waits.
class Backoff {
 public:
  Backoff(Lane lane, int spins) : spins_(lane == Lane::kCaller ? spins : 0), lane_(lane) {}

  void reset() {
    turns_ = 0;
    slept_ = std::chrono::microseconds(0);
  }
  /// Whether time is worth looking at: not while it spins.
  bool pause() {
    constexpr int kYields = 30;
    constexpr std::chrono::microseconds kShortest{20}, kLongest{500};
    ++turns_;
    if (turns_ <= spins_) {
      spin_pause();
      return false;
    }
    if (lane_ == Lane::kCaller && turns_ - spins_ <= kYields) {
      std::this_thread::yield();
      return true;
    }
    const auto longest = lane_ == Lane::kCaller ? kLongest / 5 : kLongest;
    const auto time = std::clamp(slept_ / 8, kShortest, longest);
    std::this_thread::sleep_for(time);
    slept_ += time;
    return true;
  }

 private:
  const int spins_;
  const Lane lane_;
  int turns_ = 0;
  std::chrono::microseconds slept_{0};
};

}  // namespace

Exchange::Exchange(MessageWorld& world, const Call& call, const MessageHeader& header,
                   const std::string& group)
    : world_(world), call_(call), header_(header), group_(group) {}

void Exchange::send(int to, const void* data, std::int64_t bytes) {
  // The data of an outgoing message are never written.
  auto* from = static_cast<std::byte*>(const_cast<void*>(data));
  messages_.push_back(Message{to, false, from, bytes, heads_.emplace_back(), {}});
}

void Exchange::receive(int from, void* data, std::int64_t bytes) {
  auto* to = static_cast<std::byte*>(data);
  messages_.push_back(Message{from, true, to, bytes, heads_.emplace_back(), {}});
}

void Exchange::run() {
  try {
    if (world_.failed()) throw world_.failure(call_, group_, /*missing=*/{});
    left_ = messages_.size();
    for (Message& m : messages_) start(m);
    wait_all(deadline_after(world_.options().timeout_seconds));
  } catch (...) {
    give_up();
    world_.fail(world_.transport().rank(), reason_of(std::current_exception()), true);
    throw;
  }
}

void Exchange::start(Message& m) {
  Transport& transport = world_.transport();
  if (m.incoming) {
    m.head.resize(kHeadBytes);
    // The place for the request comes first: a message that nobody knows of cannot be given up.
    m.requests.emplace_back();
    m.requests.back() = transport.start_receive(m.head.data(), kHeadBytes, m.peer, call_.channel);
    return;
  }
  MessageHeader header = header_;
  header.payload_bytes = m.bytes;
  const bool together = travels_with_header(m.bytes);
  m.head.resize(static_cast<std::size_t>(kHeaderBytes + (together ? m.bytes : 0)));
  std::memcpy(m.head.data(), &header, sizeof(header));
  if (together && m.bytes > 0) {
    std::memcpy(m.head.data() + kHeaderBytes, m.data, static_cast<std::size_t>(m.bytes));
  }
  m.requests.emplace_back();
  m.requests.back() = transport.start_send(m.head.data(), static_cast<std::int64_t>(m.head.size()),
                                           m.peer, call_.channel);
  if (!together) start_data(m);
}

void Exchange::start_data(Message& m) {
  Transport& transport = world_.transport();
  for (std::int64_t at = 0; at < m.bytes; at += transport.max_bytes()) {
    const std::int64_t bytes = std::min(transport.max_bytes(), m.bytes - at);
    m.requests.emplace_back();
    m.requests.back() = m.incoming
                            ? transport.start_receive(m.data + at, bytes, m.peer, call_.channel)
                            : transport.start_send(m.data + at, bytes, m.peer, call_.channel);
  }
}

void Exchange::take_head(Message& m, std::int64_t bytes) {
  MessageHeader theirs;
  if (bytes < kHeaderBytes) {
    theirs.magic = 0;
  } else {
    std::memcpy(&theirs, m.head.data(), sizeof(theirs));
  }
  theirs.group.back() = 0;
  theirs.shown = std::min<std::uint8_t>(theirs.shown, MessageHeader::kShown);
  const bool checked = world_.options().check == CommCheck::kOn;
  if (theirs.magic != MessageHeader::kMagic || theirs.payload_bytes != m.bytes ||
      (checked && !same_operation(theirs, header_))) {
    throw mismatch_error(m.peer, describe(theirs), world_.transport().rank(),
                         describe(call_, group_));
  }
  m.head_here = true;
  if (!travels_with_header(m.bytes)) {
    start_data(m);
  } else if (m.bytes > 0) {
    std::memcpy(m.data, m.head.data() + kHeaderBytes, static_cast<std::size_t>(m.bytes));
  }
}

bool Exchange::advance(Message& m) {
  bool moved = false;
  for (std::size_t i = 0; i < m.requests.size(); ++i) {  // take_head() appends to them.
    if (!m.requests[i].active) continue;
    std::int64_t bytes = 0;
    if (!world_.transport().test(m.requests[i], &bytes)) continue;
    moved = true;
    if (m.incoming && !m.head_here) take_head(m, bytes);
  }
  m.done = std::ranges::none_of(m.requests, [](const auto& r) { return r.active; });
  left_ -= m.done ? 1 : 0;
  return moved;
}

void Exchange::wait_all(Deadline deadline) {
  Backoff backoff(call_.lane, world_.spins());
  while (left_ > 0) {
    bool moved = false;
    for (Message& m : messages_) moved |= !m.done && advance(m);
    if (moved) {
      backoff.reset();
    } else if (backoff.pause()) {
      if (world_.failed()) throw world_.failure(call_, group_, missing());
      if (std::chrono::steady_clock::now() >= deadline) {
        throw timeout_error(call_, group_, missing(), world_.options().timeout_seconds);
      }
    }
  }
}

std::vector<int> Exchange::missing() const {
  std::vector<int> ranks;
  for (const Message& m : messages_) {
    if (m.incoming && !m.head_here) ranks.push_back(m.peer);
  }
  for (const Message& m : messages_) {  // They arrived, but do not move their data.
    if (!m.done && ranks.empty()) ranks.push_back(m.peer);
  }
  std::ranges::sort(ranks);
  return ranks;
}

void Exchange::give_up() noexcept {
  for (Message& m : messages_) {
    for (Transport::Request& r : m.requests) {
      if (r.active) world_.transport().abandon(r);
    }
  }
  world_.bury(std::move(heads_));
}

}  // namespace fourfold
