#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/futex.h"
#include "comm/message_header.h"
#include "comm/message_world.h"

namespace fourfold {

/// One round of messages of an operation: what this rank sends to its peers and takes from them, at
/// most one message each way with each peer. A message is a header, with the data behind it if they
/// are few; else the data follow in messages of their own, which the receiver asks for once it has
/// seen the header, so that a peer's wrong size never reaches a buffer.
class Exchange {
 public:
  /// `call`, `header` (that of the call, which names the part) and `group` outlive it.
  Exchange(MessageWorld& world, const Call& call, const MessageHeader& header,
           const std::string& group);

  /// Ranks are world ranks; no bytes are a message, too.
  void send(int to, const void* data, std::int64_t bytes);
  void receive(int from, void* data, std::int64_t bytes);
  /// Returns when all is sent and received. After what it throws (Error, or out of memory) the
  /// world has failed, and nothing of the messages is freed that may still arrive.
  void run();

 private:
  /// A message and its parts on their way.
  struct Message {
    int peer;
    bool incoming;
    std::byte* data;               ///< The caller's buffer; of an outgoing one, only read.
    std::int64_t bytes;            ///< Of the data.
    std::vector<std::byte>& head;  ///< In heads_: the header and, if few, the data.
    std::vector<Transport::Request> requests;
    bool head_here = false;  ///< Of an incoming one.
    bool done = false;
  };

  void start(Message& message);
  /// Sends or receives the data, as many messages as they need.
  void start_data(Message& message);
  /// Whether anything of it has moved.
  bool advance(Message& message);
  /// Looks at an incoming header of `bytes` with what came behind it, and goes on to the data.
  void take_head(Message& message, std::int64_t bytes);
  void wait_all(Deadline deadline);
  /// The world ranks that this one waits for, ascending.
  std::vector<int> missing() const;
  void give_up() noexcept;

  MessageWorld& world_;
  const Call& call_;
  const MessageHeader& header_;
  const std::string& group_;
  MessageWorld::Memory heads_;
  std::vector<Message> messages_;
  std::size_t left_ = 0;
};

}  // namespace fourfold
