#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "comm/communicator.h"

namespace fourfold {

/// Messages between the ranks of a run, point to point: the seam between the collectives made of
/// messages and what carries them. All calls may come from several threads, but those of one
/// channel (lanes.h) from one at a time. Messages of one pair and channel arrive in the order in
/// which they were sent.
/// Throws Error of kind kCommunication.
class Transport {
 public:
  /// A message on its way. Its buffer stays until test() says that it is done, or for good after
  /// abandon().
  struct Request {
    std::uint64_t handle = 0;  ///< The transport's own.
    bool active = false;
  };
  /// What a rank tells all others when it gives up.
  struct Notice {
    int rank = -1;
    std::string reason;
  };

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Ranks on this machine, this one included.
  virtual int ranks_here() const = 0;
  /// The most bytes that one message may have.
  virtual std::int64_t max_bytes() const = 0;

  virtual Request start_send(const void* data, std::int64_t bytes, int to, int channel) = 0;
  /// `bytes` is the most that fits; the message may be shorter.
  virtual Request start_receive(void* data, std::int64_t bytes, int from, int channel) = 0;
  /// Whether it is done; makes progress. Sets `bytes` to a received message's length.
  virtual bool test(Request& request, std::int64_t* bytes) = 0;
  /// Forgets a message: its buffer may be read, or written, until the process ends.
  virtual void abandon(Request& request) noexcept = 0;

  virtual void send_notice(const std::string& reason) noexcept = 0;
  /// A notice that has come, if any.
  virtual std::optional<Notice> take_notice() = 0;
};

}  // namespace fourfold
