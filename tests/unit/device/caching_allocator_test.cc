#include "device/caching_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace fourfold {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

TEST(CachingAllocator, IsOffUnderSanitizers) {
  install_caching_allocator();
  EXPECT_EQ(allocator_stats().from_system, 0);
  c10::DataPtr block = c10::GetCPUAllocator()->allocate(1000);
  EXPECT_EQ(allocator_stats().in_use, 0);
}

#else

class CachingAllocator : public ::testing::Test {
 protected:
  void SetUp() override {
    install_caching_allocator();
    install_caching_allocator();  // A second call does nothing.
  }
  static c10::DataPtr take(std::size_t bytes) { return c10::GetCPUAllocator()->allocate(bytes); }
};

TEST_F(CachingAllocator, ReusesABlockOfTheSameClass) {
  void* first = nullptr;
  {
    const c10::DataPtr block = take(5'000'000);
    first = block.get();
    std::memset(first, 1, 5'000'000);
  }
  const std::int64_t allocations = allocator_stats().system_allocations;
  const c10::DataPtr block = take(4'900'000);
  EXPECT_EQ(block.get(), first);
  EXPECT_EQ(allocator_stats().system_allocations, allocations);
}

TEST_F(CachingAllocator, CountsWhatIsInUse) {
  const std::int64_t before = allocator_stats().in_use;
  {
    const c10::DataPtr block = take(1000);
    const std::int64_t grown = allocator_stats().in_use - before;
    EXPECT_GE(grown, 1000);
    EXPECT_LE(grown, 1250);
    EXPECT_GE(allocator_stats().peak_in_use, before + grown);
    EXPECT_GE(allocator_stats().from_system, grown);
  }
  EXPECT_EQ(allocator_stats().in_use, before);
  reset_allocator_peak();
  EXPECT_EQ(allocator_stats().peak_in_use, before);
}

TEST_F(CachingAllocator, BlocksAreAlignedApartAndLargeEnough) {
  std::mt19937 engine(1);
  std::vector<std::pair<c10::DataPtr, std::size_t> > live;
  for (int i = 0; i < 500; ++i) {
    const std::size_t bytes = std::size_t{1} + engine() % (std::size_t{1} << engine() % 23);
    live.emplace_back(take(bytes), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(live.back().first.get()) % 64, 0u);
    std::memset(live.back().first.get(), i & 0xff, bytes);
    if (engine() % 2 == 0) live.erase(live.begin() + engine() % live.size());
  }
  const c10::DataPtr big = take(std::size_t{3} << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(big.get()) % (std::size_t{2} << 20), 0u);
  std::vector<std::pair<char*, char*> > spans;
  for (auto& [block, bytes] : live) {
    auto* p = static_cast<char*>(block.get());
    EXPECT_EQ(std::memcmp(p, p + 1, bytes - 1), 0) << "two blocks overlap";
  }
}

TEST_F(CachingAllocator, EmptyBlocksAreNull) {
  const std::int64_t before = allocator_stats().in_use;
  const c10::DataPtr block = take(0);
  EXPECT_EQ(block.get(), nullptr);
  EXPECT_EQ(allocator_stats().in_use, before);
}

TEST_F(CachingAllocator, BlocksOutliveTheirThreadAndItsListsAreTakenOver) {
  constexpr std::size_t kBytes = 7'000'000;
  c10::DataPtr passed;
  std::thread([&] {
    passed = take(kBytes);
    const c10::DataPtr left = take(kBytes);
  }).join();
  std::memset(passed.get(), 1, kBytes);
  const std::int64_t allocations = allocator_stats().system_allocations;
  const c10::DataPtr again = take(kBytes);  // What the thread left behind.
  EXPECT_EQ(allocator_stats().system_allocations, allocations);
  EXPECT_NE(again.get(), passed.get());
}

TEST_F(CachingAllocator, ManyThreadsPassBlocksAround) {
  const std::int64_t before = allocator_stats().in_use;
  std::vector<c10::DataPtr> shared(64);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 200; ++round) {
        for (std::size_t i = t; i < shared.size(); i += 4) {
          shared[i] = take(100 + 1000 * i);
          std::memset(shared[i].get(), static_cast<int>(t), 100 + 1000 * i);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  shared.clear();  // Freed by another thread than took them.
  EXPECT_EQ(allocator_stats().in_use, before);
}

// One thread only allocates, another only frees: what is freed finds its way back.
TEST_F(CachingAllocator, AThreadThatOnlyFreesDoesNotHoard) {
  constexpr std::size_t kBytes = 3'300'000;
  const std::int64_t before = allocator_stats().system_allocations;
  std::atomic<int> state{0};  // 2·round: to be filled; 2·round + 1: to be freed.
  c10::DataPtr handed;
  constexpr int kRounds = 100;
  std::thread consumer([&] {
    for (int round = 0; round < kRounds; ++round) {
      state.wait(2 * round);
      handed.clear();
      state.store(2 * round + 2);
      state.notify_one();
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    if (round > 0) state.wait(2 * round - 1);
    handed = take(kBytes);
    state.store(2 * round + 1);
    state.notify_one();
  }
  consumer.join();
  EXPECT_LE(allocator_stats().system_allocations - before, 40);
}

TEST_F(CachingAllocator, GivesCachedBlocksBack) {
  {
    const c10::DataPtr block = take(50'000'000);
  }
  const std::int64_t before = allocator_stats().from_system;
  release_cached_memory();
  EXPECT_LE(allocator_stats().from_system, before - 50'000'000);
}

TEST_F(CachingAllocator, RefusesTheImpossible) {
  EXPECT_ANY_THROW(take(std::size_t{1} << 62));
  EXPECT_ANY_THROW(take(std::size_t{1} << 45));
}

#endif

}  // namespace
}  // namespace fourfold
