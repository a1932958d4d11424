#include "base/async.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace fourfold {
namespace {

/// Says what it does, and stands still once.
Async<int> leaf(std::string& log, char name, int value) {
  log += name;
  co_await StandStill([&] { log += static_cast<char>(name - 'a' + 'A'); });
  co_return value;
}

Async<void> nothing(std::string& log) {
  log += '(';
  co_await StandStill([&] { log += ')'; });
}

Async<int> sum(std::string& log, char name) {
  int total = 0;
  for (int i = 1; i <= 2; ++i) total += co_await leaf(log, name, i);
  co_await nothing(log);
  co_return total + (co_await StandStill([] { return 10; }));
}

TEST(Async, RunsToTheEnd) {
  std::string log;
  EXPECT_EQ(run_to_end(sum(log, 'a')), 13);
  EXPECT_EQ(log, "aAaA()");
}

TEST(Async, NothingRunsBeforeItsTurn) {
  std::string log;
  {
    const Async<int> never = sum(log, 'a');
  }
  EXPECT_EQ(log, "");
  AsyncRun<int> run(sum(log, 'a'));
  EXPECT_EQ(log, "");
  run.resume();
  EXPECT_EQ(log, "a");
  run.resume();
  EXPECT_EQ(log, "aAa");
}

TEST(Async, CallsTakeTurns) {
  std::string log;
  std::vector<Async<int>> calls;
  for (const char name : {'a', 'b', 'c'}) calls.push_back(sum(log, name));
  EXPECT_EQ(run_in_turn(std::move(calls)), (std::vector<int>{13, 13, 13}));
  EXPECT_EQ(log, "abcAaBbCcA(B(C()))");
}

Async<int> fails(std::string& log) {
  co_await nothing(log);
  throw std::runtime_error("it failed");
}

struct Guard {
  explicit Guard(int& count) : alive(count) { ++alive; }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { --alive; }
  int& alive;
};

Async<int> guarded(std::string& log, int& alive) {
  const Guard guard(alive);
  for (int i = 0; i < 100; ++i) co_await leaf(log, 'x', 0);
  co_return 0;
}

Async<int> catches(std::string& log) {
  try {
    co_return co_await fails(log);
  } catch (const std::runtime_error& error) {
    log += error.what();
  }
  co_return -1;
}

TEST(Async, ErrorsComeOutOfTheAwait) {
  std::string log;
  EXPECT_EQ(run_to_end(catches(log)), -1);
  EXPECT_EQ(log, "()it failed");
  EXPECT_THROW(run_to_end(fails(log)), std::runtime_error);
}

TEST(Async, AnErrorEndsTheOthersWhereTheyStand) {
  std::string log;
  int alive = 0;
  std::vector<Async<int>> calls;
  calls.push_back(guarded(log, alive));
  calls.push_back(fails(log));
  calls.push_back(guarded(log, alive));
  EXPECT_THROW(run_in_turn(std::move(calls)), std::runtime_error);
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(log, "x(xXx)");
}

TEST(Async, ThousandsOfCallsNeedNoStack) {
  std::string log;
  auto many = [](std::string& text) -> Async<int> {
    int total = 0;
    for (int i = 0; i < 100'000; ++i) total += co_await leaf(text, 'a', 1);
    co_return total;
  };
  EXPECT_EQ(run_to_end(many(log)), 100'000);
}

}  // namespace
}  // namespace fourfold
