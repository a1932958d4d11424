// What ranks hear when one of them calls something else, does not come, gives up or throws.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <functional>
#include <thread>

#include "comm/incident.h"
#include "comm/thread_world.h"
#include "tests/threads/short_memory.h"

namespace fourfold {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// What the rank's function threw, or "".
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kCommunication);
    EXPECT_FALSE(e.hint().empty());
    return e.what();
  }
  return "";
}

void reduce_some(Communicator& comm, std::int64_t count, ReduceOp op = ReduceOp::kSum,
                 Lane lane = Lane::kCaller) {
  std::vector<float> data(static_cast<std::size_t>(count), 1.0f);
  comm.all_reduce({data.data(), count, DType::kF32}, op, lane).wait_host();
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Mismatch, OfOperationsNamesBothAndLeavesTheGroupUsable) {
  run_thread_ranks(3, {}, [](Communicator& world) {
    world.set_step(Step(7));
    const std::string error = error_of([&] {
      if (world.rank() == 1) return world.barrier().wait_host();
      reduce_some(world, 1000);
    });
    EXPECT_THAT(error,
                AllOf(HasSubstr("rank 0 calls all_reduce #0 over world (step 7, sum of 1000 F32)"),
                      HasSubstr("rank 1 calls barrier #0 over world (step 7)")));
    reduce_some(world, 1000);
  });
}

TEST(Mismatch, OfSizesOpsStepsAndCounts) {
  run_thread_ranks(2, {}, [](Communicator& world) {
    const int me = world.rank();
    EXPECT_THAT(error_of([&] { reduce_some(world, 500 + me); }),
                AllOf(HasSubstr("sum of 500 F32"), HasSubstr("sum of 501 F32")));
    EXPECT_THAT(error_of([&] { reduce_some(world, 5 + me); }), HasSubstr("sum of 6 F32"));
    EXPECT_THAT(error_of([&] { reduce_some(world, 9, me == 0 ? ReduceOp::kMax : ReduceOp::kAvg); }),
                AllOf(HasSubstr("max of 9"), HasSubstr("avg of 9")));
    world.set_step(Step(3 + me));
    EXPECT_THAT(error_of([&] { reduce_some(world, 9); }),
                AllOf(HasSubstr("step 3"), HasSubstr("step 4")));
    world.set_step(Step(0));
    std::array<std::int32_t, 4> buffer{};
    const std::array<std::int64_t, 2> mine{me == 0 ? 1 : 2, me == 0 ? 3 : 2};
    EXPECT_THAT(error_of([&] {
                  world
                      .all_gather({&buffer[0], mine[me], DType::kI32},
                                  {buffer.data(), 4, DType::kI32}, mine)
                      .wait_host();
                }),
                AllOf(HasSubstr("1+3 I32"), HasSubstr("2+2 I32")));
    EXPECT_THAT(error_of([&] { world.broadcast({buffer.data(), 4, DType::kI32}, me).wait_host(); }),
                AllOf(HasSubstr("from 0"), HasSubstr("from 1")));
    reduce_some(world, 10);
  });
}

TEST(Mismatch, OfPairsInAllToAllAndSend) {
  run_thread_ranks(2, {}, [](Communicator& world) {
    const int me = world.rank();
    std::array<float, 8> send{}, receive{};
    const std::array<std::int64_t, 2> counts{2, 2}, wrong{me == 0 ? 2 : 3, 2};
    EXPECT_THAT(error_of([&] {
                  world
                      .all_to_all({send.data(), 4, DType::kF32}, counts,
                                  {receive.data(), wrong[0] + 2, DType::kF32}, wrong)
                      .wait_host();
                }),
                AllOf(HasSubstr("all_to_all #0 over world"), HasSubstr("receives 3+2 F32")));
    EXPECT_THAT(error_of([&] {
                  if (me == 0) return world.send({send.data(), 5, DType::kF32}, 1).wait_host();
                  world.receive({receive.data(), 4, DType::kF32}, 0).wait_host();
                }),
                AllOf(HasSubstr("rank 0 calls send #0"), HasSubstr("5 F32 to 1"),
                      HasSubstr("rank 1 calls receive #0"), HasSubstr("4 F32 from 0")));
    reduce_some(world, 10);
  });
}

TEST(Mismatch, IsNotLookedForWhenChecksAreOff) {
  run_thread_ranks(2, {.check = CommCheck::kOff}, [](Communicator& world) {
    world.set_step(Step(world.rank()));
    EXPECT_EQ(error_of([&] { reduce_some(world, 10); }), "");
  });
}

TEST(TimeOut, NamesTheRanksThatDidNotArrive) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<bool> over{false};
  std::array<std::string, 4> errors;
  EXPECT_THROW(run_thread_ranks(4, {.timeout_seconds = 0.3},
                                [&](Communicator& world) {
                                  const int me = world.rank();
                                  const std::array<int, 3> ranks{0, 2, 3};
                                  if (me == 1) {
                                    over.wait(false);  // Alive, but elsewhere.
                                    return;
                                  }
                                  auto group = world.subgroup(ranks, "z");
                                  group->set_step(Step(12));
                                  reduce_some(*group, 100);
                                  errors[me] = error_of([&] { reduce_some(world, 77); });
                                  over = true;
                                  over.notify_all();
                                  throw Error(ErrorKind::kInternal, "end");
                                }),
               Error);
  EXPECT_LT(seconds_since(start), 5);
  int by_itself = 0;
  for (const int r : {0, 2, 3}) {
    EXPECT_THAT(errors[r], HasSubstr("all_reduce #0 over world (step 12, sum of 77 F32): "));
    EXPECT_THAT(errors[r], HasSubstr("rank 1 did not arrive within 0.3 s"));
    by_itself += errors[r].find("failed first") == std::string::npos ? 1 : 0;
  }
  EXPECT_GE(by_itself, 1);
}

TEST(TimeOut, WhoHearsOfAFailureSaysForWhomItWaited) {
  std::atomic<bool> over{false};
  run_thread_ranks(3, {.timeout_seconds = 0.3}, [&](Communicator& world) {
    // Rank 2 waits for rank 1, and rank 0, that has waited for longer, for rank 2.
    if (world.rank() == 0) {
      const auto group = world.subgroup(std::array{0, 2}, "x");
      EXPECT_THAT(error_of([&] { reduce_some(*group, 9); }), HasSubstr("rank 2 did not arrive"));
      return;
    }
    if (world.rank() == 1) return over.wait(false);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto group = world.subgroup(std::array{1, 2}, "y");
    EXPECT_THAT(
        error_of([&] { reduce_some(*group, 9); }),
        AllOf(HasSubstr("rank 0 failed first: "), HasSubstr("; rank 1 had not arrived here")));
    over = true;
    over.notify_all();
  });
}

TEST(TimeOut, OfReceiveNamesTheSender) {
  std::atomic<bool> over{false};
  run_thread_ranks(2, {.timeout_seconds = 0.2}, [&](Communicator& world) {
    if (world.rank() == 1) return over.wait(false);
    float x = 0;
    EXPECT_THAT(error_of([&] { world.receive({&x, 1, DType::kF32}, 1).wait_host(); }),
                HasSubstr("receive #0 over world (step 0, 1 F32 from 1): rank 1 did not arrive"));
    EXPECT_THAT(error_of([&] { world.send({&x, 1, DType::kF32}, 1).wait_host(); }),
                HasSubstr("rank 0 failed first: receive #0"));
    over = true;
    over.notify_all();
  });
}

TEST(TimeOut, OfABackgroundOperationComesFromItsWork) {
  std::atomic<bool> over{false};
  run_thread_ranks(2, {.timeout_seconds = 0.2}, [&](Communicator& world) {
    if (world.rank() == 1) return over.wait(false);
    std::vector<float> data(100);
    const Buffer buffer{data.data(), 100, DType::kF32};
    Work first = world.all_reduce(buffer, ReduceOp::kSum, Lane::kReduce);
    Work second = world.broadcast(buffer, 0, Lane::kReduce);
    EXPECT_THAT(error_of([&] { first.wait_host(); }),
                AllOf(HasSubstr("rank 1 did not arrive"), HasSubstr("lane reduce")));
    EXPECT_THAT(error_of([&] { second.wait_host(); }), HasSubstr("failed first"));
    over = true;
    over.notify_all();
  });
}

TEST(DroppedWork, GivesItsErrorToTheNextOperation) {
  run_thread_ranks(2, {}, [](Communicator& world) {
    std::vector<float> data(100);
    const std::int64_t count = 10 + world.rank();
    {
      Work dropped =
          world.all_reduce({data.data(), count, DType::kF32}, ReduceOp::kSum, Lane::kReduce);
    }
    EXPECT_THAT(error_of([&] { world.barrier().wait_host(); }), HasSubstr("sum of 11 F32"));
    world.barrier().wait_host();
  });
}

TEST(Throw, OfOneRankEndsTheOthersAndComesOut) {
  const auto start = std::chrono::steady_clock::now();
  std::array<std::string, 4> errors;
  auto body = [&](Communicator& world) {
    const int me = world.rank();
    world.barrier().wait_host();
    if (me == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      throw std::runtime_error("the disk is full");
    }
    errors[me] = error_of([&] {
      if (me == 3) {
        auto pair = world.subgroup(std::array<int, 2>{2, 3}, "pair");
        float x = 0;
        pair->receive({&x, 1, DType::kF32}, 0).wait_host();
      }
      reduce_some(world, 1000, ReduceOp::kSum, me == 0 ? Lane::kReduce : Lane::kCaller);
    });
  };
  try {
    run_thread_ranks(4, {}, body);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "the disk is full");
  }
  EXPECT_LT(seconds_since(start), 5);
  for (const int r : {0, 1, 3}) {
    EXPECT_THAT(errors[r], HasSubstr("rank 2 failed first: the disk is full"));
  }
}

TEST(Abort, EndsGroupsOfOthersAndLaterOnes) {
  EXPECT_THROW(run_thread_ranks(3, {},
                                [&](Communicator& world) {
                                  const std::array<int, 2> others{1, 2};
                                  if (world.rank() == 0) return world.abort("out of memory");
                                  auto group = world.subgroup(others, "others");
                                  EXPECT_THAT(error_of([&] {
                                                for (;;) group->barrier().wait_host();
                                              }),
                                              HasSubstr("rank 0 failed first: out of memory"));
                                  auto later = world.subgroup(others, "later");
                                  reduce_some(*later, 1);
                                }),
               Error);
}

TEST(Finish, OfARankIsToldAtOnceToThoseThatWait) {
  const auto start = std::chrono::steady_clock::now();
  run_thread_ranks(3, {}, [&](Communicator& world) {
    world.barrier().wait_host();
    if (world.rank() == 1) return;
    auto others = world.subgroup(std::array<int, 2>{0, 2}, "others");
    EXPECT_THAT(error_of([&] { reduce_some(world, 5); }), HasSubstr("rank 1 has ended without it"));
    for (int i = 0; i < 100; ++i) reduce_some(*others, 100);
  });
  EXPECT_LT(seconds_since(start), 5);
}

/// What waiting for `ranks` ranks, of which the last comes late, costs rank 0, over the wait's
/// time.
double share_of_core(int ranks, Lane lane) {
  double share = 1;
  run_thread_ranks(ranks, {}, [&](Communicator& world) {
    constexpr auto kLate = std::chrono::milliseconds(300);
    if (world.rank() == ranks - 1) std::this_thread::sleep_for(kLate);
    const std::clock_t start = std::clock();
    reduce_some(world, 1000, ReduceOp::kSum, lane);
    if (world.rank() == 0) {
      share = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC /
              std::chrono::duration<double>(kLate).count();
    }
  });
  return share;
}

TEST(Waiting, BurnsNoCore) {
  for (const int ranks : {2, 8}) {
    EXPECT_LT(share_of_core(ranks, Lane::kCaller), 0.3) << ranks;
    EXPECT_LT(share_of_core(ranks, Lane::kGather), 0.3) << ranks;
  }
}

TEST(Incident, ReportNamesTheRankTheCauseAndWhatRan) {
  run_thread_ranks(2, {.trace_length = 3}, [](Communicator& world) {
    world.set_step(Step(4));
    for (int i = 0; i < 5; ++i) reduce_some(world, 25);
    const std::string report =
        incident_report(world, Error(ErrorKind::kCommunication, "the cause", "the hint"));
    EXPECT_THAT(report,
                AllOf(HasSubstr(world.rank() == 0 ? "rank 0 of 2" : "rank 1 of 2"),
                      HasSubstr("cause: the cause"), HasSubstr("hint: the hint"),
                      HasSubstr("last 3 operations"), Not(HasSubstr("#1 over")),
                      HasSubstr("all_reduce #4 over world step 4 100 B lane caller: done")));
    EXPECT_THAT(world.trace(), ElementsAre(HasSubstr("#2"), HasSubstr("#3"), HasSubstr("#4")));
  });
}

/// Runs the operation on three ranks, of which rank 1 fails in its n-th allocation. Whether it had
/// that many.
bool fails_at_allocation(int n, const std::function<void(Communicator&)>& operation) {
  std::atomic<bool> failed{false};
  std::atomic<int> errors{0};
  try {
    run_thread_ranks(3, {}, [&](Communicator& world) {
      world.barrier().wait_host();
      try {
        if (world.rank() == 1) allocations_left = n;
        operation(world);
        allocations_left = -1;
      } catch (...) {
        if (world.rank() == 1 && allocations_left < 0) failed = true;
        allocations_left = -1;
        ++errors;
        throw;
      }
    });
  } catch (const std::exception&) {
    EXPECT_EQ(errors.load(), 3) << "a rank took a result that a peer did not make";
  }
  return failed;
}

TEST(OutOfMemory, OnOneRankEndsAllOfThemAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  const auto scatter = [](Communicator& world) {
    static constexpr std::array<std::int64_t, 3> kCounts{200, 200, 200};
    static std::array<std::array<float, 600>, 3> buffers;
    float* all = buffers[static_cast<std::size_t>(world.rank())].data();
    const Buffer own{all + 200 * world.rank(), 200, DType::kF32};
    world.reduce_scatter({all, 600, DType::kF32}, own, kCounts, ReduceOp::kSum).wait_host();
  };
  const auto reduce = [](Communicator& world) {
    static std::array<std::array<float, 1000>, 3> buffers;
    float* data = buffers[static_cast<std::size_t>(world.rank())].data();
    world.all_reduce({data, 1000, DType::kF32}, ReduceOp::kSum).wait_host();
  };
  for (const auto& operation : std::vector<std::function<void(Communicator&)>>{scatter, reduce}) {
    int n = 0;
    while (fails_at_allocation(n, operation)) ++n;
    EXPECT_GE(n, 2) << "allocations of one operation";
  }
  EXPECT_LT(seconds_since(start), 10);
}

TEST(Incident, TraceShowsWhatFailedAndWhatRuns) {
  std::atomic<bool> seen{false};
  run_thread_ranks(2, {}, [&](Communicator& world) {
    error_of([&] { reduce_some(world, 5 + world.rank()); });
    EXPECT_THAT(world.trace(), ElementsAre(HasSubstr("all_reduce #0 over world step 0")));
    EXPECT_THAT(world.trace()[0], HasSubstr("failed after"));
    std::vector<float> data(4);
    const Buffer buffer{data.data(), 4, DType::kF32};
    if (world.rank() == 0) {
      Work work = world.broadcast(buffer, 0, Lane::kGather);
      while (world.trace().size() < 2) std::this_thread::yield();
      EXPECT_THAT(world.trace()[1], AllOf(HasSubstr("lane gather"), HasSubstr("running for")));
      EXPECT_FALSE(work.done());
      seen = true;
      seen.notify_all();
      work.wait_host();
    } else {
      seen.wait(false);
      world.broadcast(buffer, 0, Lane::kGather).wait_host();
    }
  });
}

}  // namespace
}  // namespace fourfold
