// Models with experts: every grid of expert ranks against one rank.
#include <gtest/gtest.h>

#include "tests/train/moe_runs.h"

namespace fourfold::testing {
namespace {

TEST(Moe, EveryGridAgreesWithOneRank) {
  const RunSpec run = run_of(with_experts(tiny_gpt()), 24);
  expect_same_as_one_rank(run, {{{1, 1, 1, 1}, 1, 1},
                                {{2, 1, 1, 1}, 1, 1},
                                {{1, 2, 1, 1}, 1, 1},
                                {{1, 1, 2, 1}, 1, 3},
                                {{1, 1, 2, 1}, 2, 1},
                                {{1, 1, 1, 2}, 2, 1},
                                {{2, 1, 2, 1}, 2, 1},
                                {{1, 2, 2, 1}, 2, 3},
                                {{2, 2, 1, 2}, 2, 1},
                                {{1, 1, 4, 1}, 4, 1},
                                {{1, 1, 4, 2}, 2, 1},
                                {{1, 1, 2, 4}, 4, 3},
                                {{2, 1, 2, 2}, 4, 1}});
}

TEST(Moe, GatedExpertsBesideSharedOnes) {
  expect_same_as_one_rank(
      run_of(with_shared_experts(), 12),
      {{{3, 1, 2, 1}, 2, 1}, {{1, 2, 1, 2}, 2, 3}, {{3, 2, 1, 1}, 1, 1}, {{1, 1, 2, 2}, 4, 1}});
}

/// Seven experts, that no number of ranks divides, in either placement; a chunk of a rank's experts
/// at a time.
TEST(Moe, ExpertsThatDoNotDivide) {
  RunSpec run = run_of(with_experts(tiny_gpt(), 7), 12);
  for (const ExpertPlacement placement :
       {ExpertPlacement::kContiguous, ExpertPlacement::kInterleaved}) {
    run.parallel.expert_placement = placement;
    for (const int chunks : {1, 3}) {
      run.parallel.expert_chunks = chunks;
      expect_same_as_one_rank(run, {{{1, 1, 2, 1}, 2, 1}, {{2, 1, 1, 2}, 2, 3}});
    }
    run.parallel.expert_chunks = 1;
    expect_same_as_one_rank(run,
                            {{{1, 1, 4, 1}, 4, 1}, {{2, 1, 2, 2}, 4, 1}, {{1, 1, 3, 2}, 6, 1}});
  }
}

/// 17 tokens with 2 experts each are 34 rows, in any split over experts.
TEST(Moe, TokensThatDoNotDivideByX) {
  RunSpec run = run_of(with_experts(tiny_gpt()), 6);
  for (const bool drop_duplicates : {true, false}) {
    run.parallel.drop_duplicates = drop_duplicates;
    expect_same_as_one_rank(run,
                            {{{3, 1, 2, 1}, 2, 3}, {{3, 1, 1, 1}, 1, 6}, {{3, 2, 1, 2}, 2, 1}});
  }
}

/// Of a residual stream that is cut over x, each rank sends the rows of its own tokens.
TEST(Moe, BesideACutStream) {
  for (const bool regather : {true, false}) {
    RunSpec run = run_of(with_shared_experts(), 12);
    run.overlap.sequence_parallel = true;
    run.overlap.sp_regather = regather;
    expect_same_as_one_rank(run, {{{3, 1, 2, 1}, 2, 1}, {{3, 2, 1, 1}, 1, 2}});
    run.memory.recompute = Recompute::kFull;
    expect_same_as_one_rank(run, {{{3, 1, 1, 2}, 2, 1}});
  }
  RunSpec run = run_of(with_experts(tiny_gpt(), 7), 12);
  run.overlap.sequence_parallel = true;
  run.model.moe.jitter = 0.1;
  run.model.moe.capacity_factor = 0.8;
  for (const int chunks : {1, 3}) {
    run.parallel.expert_chunks = chunks;
    expect_same_as_one_rank(
        run,
        {{{2, 1, 1, 1}, 1, 3}, {{3, 2, 1, 1}, 1, 1}, {{2, 1, 2, 1}, 2, 1}, {{3, 1, 2, 2}, 4, 1}});
  }
}

TEST(Moe, EveryBalanceAgreesWithOneRank) {
  for (const Balance balance :
       {Balance::kNone, Balance::kAuxLoss, Balance::kLossFree, Balance::kForced}) {
    for (const BalanceScope scope :
         {BalanceScope::kSequence, BalanceScope::kMicrostep, BalanceScope::kStep}) {
      if (balance != Balance::kAuxLoss && scope == BalanceScope::kMicrostep) continue;
      SCOPED_TRACE(::testing::PrintToString(static_cast<int>(balance)) + " over " +
                   ::testing::PrintToString(static_cast<int>(scope)));
      RunSpec run = run_of(with_experts(tiny_gpt()), 12);
      run.model.moe.balance = balance;
      run.model.moe.balance_scope = scope;
      run.model.moe.aux_coef = 0.3;  // So that it is seen beside the loss.
      run.model.moe.bias_rate = 0.02;
      expect_same_as_one_rank(
          run, {{{2, 1, 2, 1}, 2, 1}, {{1, 2, 1, 2}, 2, 3}, {{1, 1, 2, 2}, 4, 1}}, /*steps=*/3);
    }
  }
}

TEST(Moe, FullExpertsDropTheSameTokensOnEveryGrid) {
  struct Way {
    BalanceScope scope;
    DropOrder order;
  };
  for (const Way& way : {Way{BalanceScope::kSequence, DropOrder::kPosition},
                         Way{BalanceScope::kSequence, DropOrder::kScore},
                         Way{BalanceScope::kMicrostep, DropOrder::kPosition}}) {
    RunSpec run = run_of(with_experts(tiny_gpt()), 12);
    run.model.moe.capacity_factor = 0.6;
    run.model.moe.balance_scope = way.scope;
    run.model.moe.drop_order = way.order;
    expect_same_as_one_rank(
        run,
        {{{2, 1, 2, 1}, 2, 1}, {{1, 2, 1, 2}, 2, 3}, {{1, 1, 2, 2}, 4, 1}, {{3, 1, 2, 1}, 1, 2}});
  }
}

TEST(Moe, JitterAndTypesOfScores) {
  RunSpec run = run_of(with_experts(tiny_llama()), 12);
  run.model.moe.jitter = 0.1;
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool renormalise : {true, false}) {
      run.model.moe.score = score;
      run.model.moe.renormalise = renormalise;
      expect_same_as_one_rank(run, {{{3, 1, 2, 1}, 2, 1}, {{1, 2, 1, 2}, 2, 2}});
    }
  }
}

/// With replicas of experts, also beyond z, whatever ranks are neighbours.
TEST(Moe, WithoutZeroAndInAnotherOrderOfRanks) {
  RunSpec run = run_of(with_experts(tiny_gpt()), 16);
  for (const int zero : {0, 1}) {
    run.memory.zero = zero;
    run.parallel.order = zero == 0 ? "dzxy" : "xdyz";
    expect_same_as_one_rank(
        run, {{{1, 1, 2, 4}, 4, 1}, {{2, 1, 1, 4}, 2, 2}, {{1, 1, 4, 2}, 2, 1}, {{1, 2, 1, 2}, 2}});
  }
}

/// Matrices of experts too are rounded once on their way over those that store or replicate them.
TEST(Moe, GradientsMayTravelInBf16) {
  set_intra_op_threads(1);
  const RunSpec run = run_of(with_experts(tiny_gpt()), 8);
  const VerifyReference reference = make_reference(run, 2, random_samples(run));
  for (const ExpertCase& c : {ExpertCase{{1, 1, 4, 1}, 2}, ExpertCase{{1, 2, 2, 2}, 2}}) {
    RunSpec rounded = on(run, c);
    rounded.overlap.grad_dtype = WireType::kBf16;
    const VerifyResult r = verify(rounded, reference);
    EXPECT_GT(r.gradient_difference, 1e-5) << text_of(r);
    EXPECT_LT(r.gradient_difference, 4e-3) << text_of(r);
    EXPECT_EQ(r.counts_difference, 0) << text_of(r);
  }
}

/// Products in bf16 may turn choices that are nearer than their rounding.
TEST(Moe, Bf16StaysNearOneRank) {
  set_intra_op_threads(1);
  RunSpec run = run_of(with_experts(tiny_gpt()), 12);
  run.train.precision = Precision::kBf16;
  const VerifyReference reference = make_reference(run, 2, random_samples(run));
  for (const ExpertCase& c : {ExpertCase{{2, 1, 2, 1}, 2}, ExpertCase{{1, 2, 1, 2}, 2}}) {
    const VerifyResult r = verify(on(run, c), reference);
    EXPECT_TRUE(r.passes(verify_tolerance(Precision::kBf16))) << text_of(r);
  }
}

}  // namespace
}  // namespace fourfold::testing
