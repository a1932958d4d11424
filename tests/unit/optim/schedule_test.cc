#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fourfold {
namespace {

Schedule schedule(Schedule::Kind kind) {
  Schedule s;
  s.kind = kind;
  s.peak = 8e-4;
  s.minimum = 8e-5;
  s.warmup = 10;
  s.steps = 110;
  s.decay = 20;
  return s;
}

TEST(Schedule, WarmUpRisesLinearlyToThePeakAndNeverStartsAtZero) {
  for (const auto kind : {Schedule::Kind::kConstant, Schedule::Kind::kLinear,
                          Schedule::Kind::kCosine, Schedule::Kind::kWsd}) {
    EXPECT_DOUBLE_EQ(learning_rate(schedule(kind), 0), 8e-5);
    EXPECT_DOUBLE_EQ(learning_rate(schedule(kind), 4), 4e-4);
    EXPECT_DOUBLE_EQ(learning_rate(schedule(kind), 9), 8e-4);
    EXPECT_DOUBLE_EQ(learning_rate(schedule(kind), 10), 8e-4);
  }
}

TEST(Schedule, EachKindIsWhereItsFormulaSays) {
  EXPECT_DOUBLE_EQ(learning_rate(schedule(Schedule::Kind::kConstant), 109), 8e-4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(Schedule::Kind::kLinear), 60), 4.4e-4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(Schedule::Kind::kCosine), 60), 4.4e-4);
  EXPECT_NEAR(learning_rate(schedule(Schedule::Kind::kCosine), 35),
              8e-5 + 7.2e-4 * (1 + std::sqrt(0.5)) / 2, 1e-15);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(Schedule::Kind::kWsd), 90), 8e-4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(Schedule::Kind::kWsd), 100), 4.4e-4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(Schedule::Kind::kInverseSqrt), 39), 4e-4);
  EXPECT_DOUBLE_EQ(learning_rate(schedule(Schedule::Kind::kInverseSqrt), 99'999), 8e-5);
}

TEST(Schedule, EndsAtTheMinimumAndStaysThere) {
  for (const auto kind : {Schedule::Kind::kLinear, Schedule::Kind::kCosine, Schedule::Kind::kWsd}) {
    EXPECT_NEAR(learning_rate(schedule(kind), 110), 8e-5, 1e-18);
    EXPECT_NEAR(learning_rate(schedule(kind), 500), 8e-5, 1e-18);
  }
}

TEST(Schedule, WithoutWarmUpStartsAtThePeak) {
  Schedule s = schedule(Schedule::Kind::kCosine);
  s.warmup = 0;
  EXPECT_DOUBLE_EQ(learning_rate(s, 0), 8e-4);
}

}  // namespace
}  // namespace fourfold
