#include "plan/step_shares.h"

#include <gtest/gtest.h>

namespace fourfold {
namespace {

using Kind = TimelineSpan::Kind;

TimelineSpan span(Kind kind, double begin, double end, std::string track = "main") {
  return {std::move(track), "", kind, begin, end};
}

TEST(StepShares, SplitsAStep) {
  const TimelineSpan step = span(Kind::kStep, 10, 20);
  const StepShares s = step_shares(
      {step, span(Kind::kCompute, 10, 19), span(Kind::kCommunicate, 11, 12),   // Exposed.
       span(Kind::kWait, 11.5, 13),                                            // And one more.
       span(Kind::kCommunicate, 12, 16, "gather z"),                           // 3 hidden.
       span(Kind::kCommunicate, 15, 17, "reduce x"),                           // 1 more.
       span(Kind::kCheckpoint, 18, 19.5), span(Kind::kCommunicate, 18, 18.5),  // The checkpoint's.
       span(Kind::kCheckpoint, 10, 20, "persist")},
      step);
  EXPECT_DOUBLE_EQ(s.step, 10);
  EXPECT_DOUBLE_EQ(s.exposed, 2);
  EXPECT_DOUBLE_EQ(s.hidden, 4);
  EXPECT_DOUBLE_EQ(s.checkpoint, 1.5);
  EXPECT_DOUBLE_EQ(s.compute, 6.5);
}

TEST(StepShares, TakesOfOtherStepsNothing) {
  const TimelineSpan step = span(Kind::kStep, 10, 20);
  const StepShares s = step_shares(
      {span(Kind::kWait, 1, 9), span(Kind::kWait, 8, 11), span(Kind::kCommunicate, 19, 25, "z")},
      step);
  EXPECT_DOUBLE_EQ(s.exposed, 1);
  EXPECT_DOUBLE_EQ(s.hidden, 1);
  EXPECT_DOUBLE_EQ(s.compute, 9);
}

}  // namespace
}  // namespace fourfold
