// One exchange by hand; random ones are simulated in tests/property/exchange_property_test.cc.
#include "layout/exchange_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fourfold {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// 3 tokens with 2 experts of 3 each; one assignment is dropped.
const std::vector<std::int32_t> kChosen{2, 0, 1, -1, 0, 2};

TEST(SendOrder, ByRankThenExpertThenToken) {
  const ExpertMap map(3, 2, ExpertPlacement::kContiguous);  // 0 and 1 | 2.
  const SendOrder order(kChosen, map, 1);
  EXPECT_EQ(order.assignments(), 6);
  EXPECT_EQ(order.count(0), 2);
  EXPECT_EQ(order.count(1), 1);
  EXPECT_THAT(order.to_rank(0, 0), ElementsAre(1, 4, 2));
  EXPECT_THAT(order.to_rank(0, 1), ElementsAre(0, 5));
  EXPECT_THAT(order.counts_to_tell({}), ElementsAre(2, 1, 2));
  EXPECT_THAT(order.numbers_to_tell({}), ElementsAre(2, 1));
}

TEST(SendOrder, ByChunkFirst) {
  const ExpertMap map(3, 2, ExpertPlacement::kInterleaved);  // 0 and 2 | 1.
  const SendOrder order(kChosen, map, 2);
  EXPECT_THAT(order.to_rank(0, 0), ElementsAre(1, 4));
  EXPECT_THAT(order.to_rank(0, 1), ElementsAre(2));
  EXPECT_THAT(order.to_rank(1, 0), ElementsAre(0, 5));
  EXPECT_THAT(order.to_rank(1, 1), IsEmpty());
  EXPECT_THAT(order.counts_to_tell({}), ElementsAre(2, 2, 1));
}

TEST(ExchangePlan, OfOneRankOfTwoAndTwoOverX) {
  const ExpertMap map(3, 2, ExpertPlacement::kContiguous);
  const SendOrder order(kChosen, map, 1);
  // This is expert rank 0: of its experts it has (2, 1) itself, rank 1 has (0, 3).
  const std::vector<std::int64_t> told{2, 1, 0, 3};
  const ExchangePlan first = plan_exchange(order, 0, told, {2, 0});
  const ExchangePlan second = plan_exchange(order, 0, told, {2, 1});
  // The first x sends 2 of 3 rows to rank 0 and 1 of 2 to rank 1, the second the others.
  EXPECT_THAT(first.chunks[0].sent, ElementsAre(1, 4, 0));
  EXPECT_THAT(first.chunks[0].send, ElementsAre(2, 1));
  EXPECT_THAT(first.chunks[0].receive, ElementsAre(2, 2));
  EXPECT_THAT(second.chunks[0].sent, ElementsAre(2, 5));
  EXPECT_THAT(second.chunks[0].send, ElementsAre(1, 1));
  EXPECT_THAT(second.chunks[0].receive, ElementsAre(1, 1));
  for (const ExchangePlan* plan : {&first, &second}) {
    const ExchangeChunk& chunk = plan->chunks[0];
    EXPECT_THAT(chunk.arrived, ElementsAre(4, 2));
    // Of x = 0: expert 0's rows of rank 0, then two of expert 1 of rank 1; of x = 1: expert 1's of
    // rank 0, then the third of rank 1. By expert: 0 0 | 1 (rank 0) 1 1 1 (rank 1).
    EXPECT_THAT(chunk.expert_row, ElementsAre(0, 1, 3, 4, 2, 5));
    EXPECT_THAT(chunk.rows_of_expert, ElementsAre(2, 4));
    EXPECT_THAT(chunk.returned, ElementsAre(3, 2));
    // Back come 1 4 0 of x = 0, then 2 5 of x = 1.
    EXPECT_THAT(plan->place, ElementsAre(2, 0, 3, -1, 1, 4));
    EXPECT_EQ(plan->returned_rows, 5);
  }
}

TEST(ExchangePlan, WhereTokensAreCutOverX) {
  const ExpertMap map(3, 2, ExpertPlacement::kContiguous);
  const SendOrder order(kChosen, map, 1);
  // Tokens 0 and 1 are the first x's, token 2 the second's.
  const ExchangeParts of_first{2, 0, 2}, of_second{2, 1, 2};
  EXPECT_THAT(order.counts_to_tell(of_first), ElementsAre(1, 1, 1, 0, 1, 1));
  EXPECT_THAT(order.numbers_to_tell(of_first), ElementsAre(4, 2));
  // Rank 1 has two rows of expert 1 on its first x, one on its second.
  const std::vector<std::int64_t> told{1, 1, 1, 0, 0, 2, 0, 1};
  const ExchangePlan first = plan_exchange(order, 0, told, of_first);
  const ExchangePlan second = plan_exchange(order, 0, told, of_second);
  EXPECT_THAT(first.chunks[0].sent, ElementsAre(1, 2, 0));
  EXPECT_THAT(first.chunks[0].send, ElementsAre(2, 1));
  EXPECT_THAT(first.chunks[0].receive, ElementsAre(2, 2));
  EXPECT_THAT(first.chunks[0].returned, ElementsAre(3));
  EXPECT_THAT(first.place, ElementsAre(2, 0, 1, -1));
  EXPECT_THAT(second.chunks[0].sent, ElementsAre(0, 1));
  EXPECT_THAT(second.chunks[0].send, ElementsAre(1, 1));
  EXPECT_THAT(second.chunks[0].receive, ElementsAre(1, 1));
  EXPECT_THAT(second.place, ElementsAre(0, 1));
  EXPECT_EQ(second.returned_rows, 2);
  for (const ExchangePlan* plan : {&first, &second}) {
    EXPECT_THAT(plan->chunks[0].arrived, ElementsAre(4, 2));
    EXPECT_THAT(plan->chunks[0].expert_row, ElementsAre(0, 2, 3, 4, 1, 5));
    EXPECT_THAT(plan->chunks[0].rows_of_expert, ElementsAre(2, 4));
  }
}

}  // namespace
}  // namespace fourfold
