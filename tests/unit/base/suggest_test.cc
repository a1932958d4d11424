#include "base/suggest.h"

#include <gtest/gtest.h>

namespace fourfold {
namespace {

TEST(Suggest, CountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("bacth", "batch"), 1);  // Neighbours swapped.
}

TEST(Suggest, FindsOnlyWhatIsNear) {
  const std::vector<std::string> words{"steps", "tokens", "global_batch"};
  EXPECT_EQ(closest("stesp", words), "steps");
  EXPECT_EQ(closest("globalbatch", words), "global_batch");
  EXPECT_EQ(closest("zebra", words), "");
  EXPECT_EQ(closest(std::string(100000, 'x'), words), "");
}

}  // namespace
}  // namespace fourfold
