#include "policy/head_layout.h"

#include <gtest/gtest.h>

namespace fourfold {
namespace {

TEST(HeadLayout, GathersWhereTheVocabularyOfARankIsWiderThanHidden) {
  EXPECT_EQ(choose_head_layout({1, 2, 1, 1}, 32000, 4096, 4096, false, 2),
            HeadLayout::kGatherHidden);
  EXPECT_EQ(choose_head_layout({8, 2, 1, 1}, 32000, 4096, 4096, false, 2),
            HeadLayout::kReduceLogits);
}

TEST(HeadLayout, TiedWeightsPayForTheirExchange) {
  // 64 rows are too few to pay for moving the table; 4096 are enough.
  EXPECT_EQ(choose_head_layout({1, 2, 1, 1}, 50257, 768, 64, true, 4), HeadLayout::kReduceLogits);
  EXPECT_EQ(choose_head_layout({1, 2, 1, 1}, 50257, 768, 4096, true, 4), HeadLayout::kGatherHidden);
}

TEST(HeadLayout, HasNothingToChooseWithoutY) {
  EXPECT_EQ(choose_head_layout({8, 1, 2, 1}, 1 << 20, 64, 4096, false, 4),
            HeadLayout::kReduceLogits);
}

}  // namespace
}  // namespace fourfold
