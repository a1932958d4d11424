#include "ckpt/coverage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fourfold {
namespace {

using testing::HasSubstr;

std::string problem_of(std::vector<const char*> boxes, const char* whole) {
  Coverage coverage;
  for (const char* box : boxes) coverage.add(*Region::parse(box));
  return coverage.problem(*Region::parse(whole)).value_or("");
}

TEST(Coverage, ExactlyOnce) {
  EXPECT_EQ(problem_of({"[0:2,0:5]", "[2:7,3:5]", "[2:7,0:3]"}, "[0:7,0:5]"), "");
  EXPECT_EQ(problem_of({"[]"}, "[]"), "");
  EXPECT_EQ(problem_of({}, "[3:3,0:4]"), "");
  EXPECT_EQ(problem_of({"[1:1,0:9]", "[4:6]"}, "[4:6]"), "") << "empty boxes do not count";
}

TEST(Coverage, SaysWhatIsWrong) {
  EXPECT_THAT(problem_of({"[0:2,0:5]"}, "[0:7,0:5]"), HasSubstr("25 of 35 elements are missing"));
  EXPECT_THAT(problem_of({"[0:3]", "[2:5]"}, "[0:6]"), HasSubstr("hold the same elements"));
  EXPECT_THAT(problem_of({"[0:3]", "[0:3]"}, "[0:6]"), HasSubstr("hold the same elements"));
  EXPECT_THAT(problem_of({"[0:1,0:9]", "[0:1,8:12]"}, "[0:1,0:12]"), HasSubstr("the same"));
  EXPECT_THAT(problem_of({"[0:8]"}, "[0:6]"), HasSubstr("lies outside"));
  EXPECT_THAT(problem_of({"[0:8]"}, "[0:6,0:1]"), HasSubstr("lies outside"));
  EXPECT_THAT(problem_of({"[]", "[]"}, "[]"), HasSubstr("two hold the one element"));
}

TEST(Coverage, ManyColumnsAreSweptAlongTheirOwnDim) {
  constexpr std::int64_t kColumns = 200000;  // Pairwise comparison would take minutes.
  Coverage coverage;
  for (std::int64_t i = 0; i < kColumns; ++i) coverage.add(Region{{{0, 1}, {i, i + 1}}});
  EXPECT_FALSE(coverage.problem(Region{{{0, 1}, {0, kColumns}}}));
}

}  // namespace
}  // namespace fourfold
