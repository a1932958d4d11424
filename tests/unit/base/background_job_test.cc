#include "base/background_job.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "base/clock.h"

namespace fourfold {
namespace {

TEST(BackgroundJob, RunsBesideItsOwner) {
  std::atomic<bool> go = false;
  BackgroundJob job([&] { go.wait(false); });
  EXPECT_FALSE(job.ended_within(std::chrono::milliseconds(5)));
  go = true;
  go.notify_all();
  job.wait();
  EXPECT_TRUE(job.ended_within(std::chrono::milliseconds(0)));
  EXPECT_FALSE(job.error());
}

TEST(BackgroundJob, KeepsWhatItsWorkThrows) {
  BackgroundJob typed([] { throw Error(ErrorKind::kData, "full", "make room"); });
  EXPECT_EQ(typed.error()->kind(), ErrorKind::kData);
  EXPECT_EQ(typed.error()->hint(), "make room");
  BackgroundJob other([] { throw std::runtime_error("odd"); });
  EXPECT_EQ(other.error()->kind(), ErrorKind::kInternal);
  EXPECT_STREQ(other.error()->what(), "odd");
}

TEST(BackgroundJob, CountsItsThreadsTime) {
  BackgroundJob idle([] {});
  BackgroundJob busy([] {
    const double until = thread_cpu_seconds() + 0.02;
    while (thread_cpu_seconds() < until) {
    }
  });
  EXPECT_GE(busy.cpu_seconds(), 0.02);
  EXPECT_LT(idle.cpu_seconds(), busy.cpu_seconds());
}

TEST(BackgroundJob, TheDestructorWaits) {
  std::atomic<bool> ended = false;
  {
    BackgroundJob job([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ended = true;
    });
  }
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace fourfold
