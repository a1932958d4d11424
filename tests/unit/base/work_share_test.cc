#include "base/work_share.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace fourfold {
namespace {

TEST(WorkShare, DoesEveryPieceOnce) {
  for (const int threads : {0, 1, 3}) {
    for (const std::size_t pieces : {0u, 1u, 2u, 1000u}) {
      std::vector<std::atomic<int>> done(pieces);
      WorkShare(threads).run(pieces, [&](std::size_t i) { ++done[i]; });
      for (std::size_t i = 0; i < pieces; ++i) EXPECT_EQ(done[i], 1) << i << " of " << pieces;
    }
  }
}

// Two pieces that wait for each other end only on two threads.
TEST(WorkShare, PiecesRunAtTheSameTime) {
  WorkShare share(2);
  std::atomic<int> there = 0;
  std::mutex mutex;
  std::set<std::thread::id> ids;
  share.run(2, [&](std::size_t) {
    ++there;
    while (there < 2) std::this_thread::yield();
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(ids.size(), 2u);
  EXPECT_TRUE(ids.contains(std::this_thread::get_id()));
  EXPECT_GT(share.others_cpu_seconds(), 0);
}

}  // namespace
}  // namespace fourfold
