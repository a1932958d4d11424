#include "comm/message_world.h"

#include "base/check.h"
#include "device/intra_op_threads.h"

namespace fourfold {
namespace {

/// FNV-1a over 64-bit words, continued from `hash`.
std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  for (int byte = 0; byte < 8; ++byte) {
    hash = (hash ^ ((word >> (8 * byte)) & 0xffu)) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace

MessageWorld::MessageWorld(std::unique_ptr<Transport> transport,
                           std::shared_ptr<RankContext> context)
    : context_(std::move(context)),
      spins_(transport->ranks_here() <= available_cores() ? 2000 : 0),
      transport_(std::move(transport)) {
  FF_CHECK(options().timeout_seconds > 0, "time-out of {} s", options().timeout_seconds);
}

std::uint64_t MessageWorld::new_context(const std::vector<int>& members, const std::string& name) {
  const std::lock_guard lock(mutex_);
  std::uint64_t hash = mix(0xcbf29ce484222325u, times_made_[{members, name}]++);
  for (const int m : members) hash = mix(hash, static_cast<std::uint64_t>(m));
  for (const char c : name) hash = mix(hash, static_cast<unsigned char>(c));
  return hash;
}

void MessageWorld::fail(int rank, const std::string& reason, bool tell) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (failed_.load()) return;
    failed_rank_ = rank;
    reason_ = reason;
    failed_.store(true);
  }
  if (tell) transport_->send_notice(reason);
}

bool MessageWorld::failed() {
  if (failed_.load()) return true;
  const std::optional<Transport::Notice> notice = transport_->take_notice();
  if (notice) fail(notice->rank, notice->reason, false);
  return notice.has_value();
}

Error MessageWorld::failure(const Call& call, const std::string& group,
                            const std::vector<int>& missing) {
  const std::lock_guard lock(mutex_);
  return aborted_error(call, group, failed_rank_, reason_, missing);
}

void MessageWorld::bury(Memory&& memory) noexcept {
  const std::lock_guard lock(mutex_);
  buried_.splice(buried_.end(), memory);
}

}  // namespace fourfold
