// The collectives made of messages, over a transport inside this process: the suite with messages
// so short that all data travel in many, and what waiting costs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <numeric>
#include <thread>

#include "comm/message_communicator.h"
#include "comm/thread_world.h"
#include "tests/threads/collective_suite.h"

namespace fourfold {
namespace {

using ::testing::HasSubstr;

/// Messages that lie in a queue until somebody takes them.
class Post {
 public:
  using Route = std::tuple<int, int, int>;  ///< From, to, channel.
  void put(Route route, std::vector<std::byte> message) {
    const std::lock_guard lock(mutex_);
    bytes_ += static_cast<std::int64_t>(message.size());
    queues_[route].push_back(std::move(message));
  }
  std::optional<std::vector<std::byte>> take(Route route) {
    const std::lock_guard lock(mutex_);
    auto& queue = queues_[route];
    if (queue.empty()) return std::nullopt;
    auto message = std::move(queue.front());
    queue.pop_front();
    return message;
  }
  /// Of all messages so far.
  std::int64_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  std::mutex mutex_;
  std::map<Route, std::deque<std::vector<std::byte>>> queues_;
  std::int64_t bytes_ = 0;
};

class PostTransport : public Transport {
 public:
  PostTransport(Post& post, int rank, int size, std::int64_t max_bytes)
      : post_(post), rank_(rank), size_(size), max_bytes_(max_bytes) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int ranks_here() const override { return size_; }
  std::int64_t max_bytes() const override { return max_bytes_; }

  Request start_send(const void* data, std::int64_t bytes, int to, int channel) override {
    const auto* begin = static_cast<const std::byte*>(data);
    post_.put({rank_, to, channel}, std::vector<std::byte>(begin, begin + bytes));
    return add({});
  }
  Request start_receive(void* data, std::int64_t bytes, int from, int channel) override {
    return add({data, bytes, from, channel});
  }
  bool test(Request& request, std::int64_t* bytes) override {
    Waiting waiting;
    {
      const std::lock_guard lock(mutex_);
      waiting = waiting_.at(request.handle);
      for (const auto& [handle, other] : waiting_) {  // The receive posted first gets the first.
        if (handle == request.handle) break;
        if (other.data != nullptr && other.from == waiting.from &&
            other.channel == waiting.channel) {
          return false;
        }
      }
    }
    if (waiting.data != nullptr) {
      const auto message = post_.take({waiting.from, rank_, waiting.channel});
      if (!message) return false;
      *bytes = static_cast<std::int64_t>(message->size());
      EXPECT_LE(*bytes, waiting.bytes);
      std::memcpy(waiting.data, message->data(), message->size());
    }
    abandon(request);
    return true;
  }
  void abandon(Request& request) noexcept override {
    const std::lock_guard lock(mutex_);
    waiting_.erase(request.handle);
    request.active = false;
  }
  void send_notice(const std::string&) noexcept override {}
  std::optional<Notice> take_notice() override { return std::nullopt; }
  std::size_t under_way() const { return waiting_.size(); }

 private:
  struct Waiting {
    void* data = nullptr;  ///< Null for a send, which is done at once.
    std::int64_t bytes = 0;
    int from = 0;
    int channel = 0;
  };
  Request add(const Waiting& waiting) {
    const std::lock_guard lock(mutex_);
    waiting_[++last_] = waiting;
    return {last_, true};
  }

  Post& post_;
  const int rank_, size_;
  const std::int64_t max_bytes_;
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, Waiting> waiting_;
};

void run_message_ranks(Post& post, int size, std::int64_t max_bytes, const CommOptions& options,
                       const std::function<void(Communicator&)>& rank_main) {
  run_thread_ranks(size, options, [&](Communicator& thread) {
    auto world = std::make_shared<MessageWorld>(
        std::make_unique<PostTransport>(post, thread.rank(), size, max_bytes),
        std::make_shared<RankContext>(thread.rank(), options));
    std::vector<int> members(static_cast<std::size_t>(size));
    std::iota(members.begin(), members.end(), 0);
    MessageCommunicator comm(thread.rank(), members, "world", world);
    rank_main(comm);
  });
}

TEST(Messages, RunTheSuiteInShortPieces) {
  for (const int size : {2, 3}) {
    Post post;
    run_message_ranks(post, size, 1000, {}, [&](Communicator& world) {
      run_collective_suite(world, {.large = false, .longest = 65537});
    });
  }
}

TEST(Messages, RunTheSuiteUnchecked) {
  Post post;
  run_message_ranks(post, 2, 1 << 20, {.check = CommCheck::kOff}, [&](Communicator& world) {
    run_collective_suite(world, {.large = false, .longest = 1000});
  });
}

TEST(Messages, CarryNoMoreThanARing) {
  for (const int size : {2, 3, 5}) {
    constexpr std::int64_t kCount = 3'000'000;
    Post post;
    run_message_ranks(post, size, 1 << 30, {}, [&](Communicator& world) {
      std::vector<float> data(kCount, 1.0f);
      world.all_reduce({data.data(), kCount, DType::kF32}, ReduceOp::kSum).wait_host();
    });
    const std::int64_t ring = 2 * (size - 1) * kCount * 4;  // Of all ranks.
    EXPECT_GE(post.bytes(), ring);
    EXPECT_LT(post.bytes(), ring * 101 / 100) << "headers";
  }
}

TEST(Messages, OfAPeerWithAnotherSizeNeverReachTheBuffer) {
  Post post;
  EXPECT_THROW(run_message_ranks(post, 2, 1000, {.check = CommCheck::kOff},
                                 [&](Communicator& world) {
                                   std::vector<std::uint8_t> data(20000);
                                   const std::int64_t count = world.rank() == 0 ? 9000 : 8000;
                                   world.broadcast({data.data(), count, DType::kU8}, 0).wait_host();
                                 }),
               Error);
}

/// Gives up at a send, as the library does when it has no memory.
class PoorTransport final : public PostTransport {
 public:
  using PostTransport::PostTransport;
  Request start_send(const void*, std::int64_t, int, int) override { throw std::bad_alloc(); }
};

TEST(Messages, OutOfMemoryLeavesNoMessageUnderWay) {
  Post post;
  auto owned = std::make_unique<PoorTransport>(post, 0, 2, 1000);
  const PoorTransport& transport = *owned;
  auto world = std::make_shared<MessageWorld>(std::move(owned),
                                              std::make_shared<RankContext>(0, CommOptions{}));
  MessageCommunicator comm(0, {0, 1}, "world", world);
  Communicator& group = comm;
  EXPECT_THROW(group.barrier().wait_host(), std::bad_alloc);
  EXPECT_EQ(transport.under_way(), 0u);
  EXPECT_TRUE(world->failed());
}

}  // namespace
}  // namespace fourfold
