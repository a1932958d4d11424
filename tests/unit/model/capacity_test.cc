#include "model/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace fourfold {
namespace {

using testing::Each;
using testing::ElementsAre;

using Experts = std::vector<std::int32_t>;

MoeSpec spec_of(int experts, int top_k, double factor) {
  MoeSpec spec;
  spec.experts = experts;
  spec.top_k = top_k;
  spec.capacity_factor = factor;
  return spec;
}

TEST(Capacity, IsTheShareOfAnExpertRoundedUp) {
  EXPECT_EQ(expert_capacity(spec_of(4, 2, 1.0), 16), 8);
  EXPECT_EQ(expert_capacity(spec_of(4, 2, 1.25), 16), 10);
  EXPECT_EQ(expert_capacity(spec_of(5, 2, 1.0), 17), 7);    // 6.8.
  EXPECT_EQ(expert_capacity(spec_of(5, 2, 0.6), 17), 5);    // 4.08.
  EXPECT_EQ(expert_capacity(spec_of(8, 1, 0.01), 10), 1);   // Never none of some.
  EXPECT_EQ(expert_capacity(spec_of(2, 1, 1.1), 100), 55);  // Though 1.1 is a little more.
  EXPECT_EQ(expert_capacity(spec_of(4, 2, 1.0), 0), 0);
}

TEST(Capacity, LastOnesAreDropped) {
  Experts experts{1, 0, 1, 1, 0, 2, 1};
  std::vector<std::int64_t> before(3);
  drop_last(experts, before, 2);
  EXPECT_THAT(experts, ElementsAre(1, 0, 1, -1, 0, 2, -1));
  EXPECT_THAT(before, ElementsAre(2, 2, 1));
}

TEST(Capacity, ThoseThatCameBeforeCount) {
  Experts experts{1, 0, 1, 1, 0, 2, 2};
  std::vector<std::int64_t> before{1, 0, 7};  // The last is over-full already.
  drop_last(experts, before, 2);
  EXPECT_THAT(experts, ElementsAre(1, 0, 1, -1, -1, -1, -1));
  EXPECT_THAT(before, ElementsAre(2, 2, 7));  // What was dropped does not count.
}

/// A scope in parts, one after the other, drops what the whole does.
TEST(Capacity, PartsDropWhatTheWholeDoes) {
  Experts whole{0, 1, 0, 0, 2, 1, 0, 1, 1, 2};
  Experts parts = whole;
  std::vector<std::int64_t> before(3), of_parts(3);
  drop_last(whole, before, 3);
  drop_last(std::span(parts).first(4), of_parts, 3);
  drop_last(std::span(parts).subspan(4), of_parts, 3);
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(of_parts, before);
}

TEST(Capacity, NothingIsDroppedWhereAllFit) {
  const Experts chosen{3, 3, 0, 3};
  Experts last = chosen, lowest = chosen;
  std::vector<std::int64_t> before(4);
  const std::vector<float> weights{0.1f, 0.2f, 0.3f, 0.4f};
  drop_last(last, before, 3);
  drop_lowest(lowest, weights.data(), 4, 3);
  EXPECT_EQ(last, chosen);
  EXPECT_EQ(lowest, chosen);
  drop_lowest(lowest, weights.data(), 4, 0);
  EXPECT_THAT(lowest, Each(-1));
}

TEST(Capacity, LowestWeightsAreDropped) {
  Experts experts{0, 1, 0, 0, 1, 0};
  const std::vector<float> weights{0.3f, 0.1f, 0.9f, 0.2f, 0.05f, 0.4f};
  drop_lowest(experts, weights.data(), 2, 2);
  EXPECT_THAT(experts, ElementsAre(-1, 1, 0, -1, 1, 0));
}

TEST(Capacity, OfEqualWeightsTheFirstStay) {
  Experts experts{0, 0, 1, 0, 0, 1};
  const std::vector<float> weights{0.5f, 0.5f, 0.5f, 0.7f, 0.5f, 0.5f};
  drop_lowest(experts, weights.data(), 2, 2);
  EXPECT_THAT(experts, ElementsAre(0, -1, 1, 0, -1, 1));
  Experts many(100, 0);  // So many that a sort may put equal ones in another order.
  drop_lowest(many, std::vector<float>(100, 0.25f).data(), 1, 60);
  EXPECT_THAT(std::span(many).first(60), Each(0));
  EXPECT_THAT(std::span(many).subspan(60), Each(-1));
}

}  // namespace
}  // namespace fourfold
