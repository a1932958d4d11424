#include "spec/validate_moe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/presets.h"

namespace fourfold {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// "key: cause | hint" of a run of a preset after a change.
template <class Change>
std::string problem(Change change, const char* preset = "llama-moe-tiny") {
  RunSpec run;
  run.model = find_preset(preset).value();
  run.train = {.steps = 10, .global_batch = 24, .micro_batch = 1, .seq_len = 33};
  change(run);
  auto found = check_run(run);
  if (!found) found = check_grid(run);
  return found ? found->key + ": " + found->message + " | " + found->hint : "none";
}

TEST(ValidateMoe, AcceptsGoodRuns) {
  for (const char* preset : {"llama-moe-tiny", "gpt-moe-tiny", "llama-tiny"}) {
    EXPECT_EQ(problem([](RunSpec&) {}, preset), "none");
  }
  // Widths need not divide.
  EXPECT_EQ(problem([](RunSpec& r) {
              r.parallel.grid = {3, 2, 2, 2};
              r.parallel.expert = 4;
              r.model.moe.ffn = 59;
            }),
            "none");
}

TEST(ValidateMoe, ATokenTakesNoMoreExpertsThanThereAre) {
  EXPECT_EQ(problem([](RunSpec& r) { r.model.moe.top_k = 6; }), "none");
  EXPECT_THAT(problem([](RunSpec& r) { r.model.moe.top_k = 1; }),
              StartsWith("model.moe.renormalise: with top_k = 1"));
  EXPECT_THAT(problem([](RunSpec& r) { r.model.moe.top_k = 7; }),
              StartsWith("model.moe.top_k: a token cannot take 7 of 6 experts | lower"));
}

TEST(ValidateMoe, ALayerHasExperts) {
  EXPECT_EQ(problem([](RunSpec& r) { r.model.moe.every = 2; }), "none");  // Block 1.
  EXPECT_EQ(problem([](RunSpec& r) { r.model.moe.first_dense = 1; }), "none");
  EXPECT_THAT(problem([](RunSpec& r) { r.model.moe.every = 3; }),
              StartsWith("model.moe.every: none of 2 blocks has experts"));
  EXPECT_THAT(problem([](RunSpec& r) { r.model.moe.first_dense = 2; }),
              StartsWith("model.moe.first_dense: none of 2 blocks"));
  EXPECT_THAT(problem([](RunSpec& r) {  // Of 5 blocks, 1 and 3 would have them.
                r.model.layers = 5;
                r.model.moe.every = 2;
                r.model.moe.first_dense = 4;
              }),
              HasSubstr("every = 2 and first_dense = 4 leave none"));
}

// The rule in closed form against the layers themselves.
TEST(ValidateMoe, ALayerHasExpertsWhereTheSpecSaysSo) {
  for (int layers = 1; layers < 7; ++layers) {
    for (int every = 1; every < 8; ++every) {
      for (int dense = 0; dense < 8; ++dense) {
        RunSpec run;
        run.model = find_preset("llama-moe-tiny").value();
        run.model.layers = layers;
        run.model.moe.every = every;
        run.model.moe.first_dense = dense;
        bool any = false;
        for (int i = 0; i < layers; ++i) any |= run.model.moe.in_layer(i);
        EXPECT_EQ(!check_moe(run), any) << layers << ' ' << every << ' ' << dense;
      }
    }
  }
}

TEST(ValidateMoe, ParametersCanBeCounted) {
  EXPECT_THAT(problem([](RunSpec& r) {
                r.model.layers = 10'000;
                r.model.moe.experts = 100'000;
                r.model.moe.ffn = 100'000'000;
              }),
              AllOf(StartsWith("model.moe.experts: 100000 experts of width 100000000 are 2.2e+19"),
                    HasSubstr("at most 1e+18")));
}

TEST(ValidateMoe, KeysOfExpertsNeedExperts) {
  const auto dense = [](auto change) { return problem(change, "llama-tiny"); };
  EXPECT_THAT(dense([](RunSpec& r) { r.model.moe.shared_experts = 1; }),
              StartsWith("model.moe.shared_experts: model.moe.shared_experts is 1, but the model "
                         "has no experts | give model.moe.experts"));
  EXPECT_THAT(dense([](RunSpec& r) { r.model.moe.capacity_factor = 1.5; }),
              HasSubstr("capacity_factor is 1.5, but"));
  EXPECT_THAT(dense([](RunSpec& r) { r.model.moe.balance = Balance::kLossFree; }),
              HasSubstr("balance is \"loss_free\", but"));
  EXPECT_THAT(dense([](RunSpec& r) { r.parallel.expert = 2; }),
              StartsWith("parallel.expert: parallel.expert is 2, but the model has no experts"));
  EXPECT_THAT(dense([](RunSpec& r) { r.parallel.expert_chunks = 2; }),
              HasSubstr("expert_chunks is 2, but"));
}

TEST(ValidateMoe, Scopes) {
  EXPECT_THAT(problem([](RunSpec& r) {
                r.model.moe.capacity_factor = 1;
                r.model.moe.balance_scope = BalanceScope::kStep;
              }),
              AllOf(StartsWith("model.moe.capacity_factor: an expert's capacity cannot"),
                    HasSubstr("\"sequence\" or \"microstep\"")));
  EXPECT_EQ(problem([](RunSpec& r) { r.model.moe.balance_scope = BalanceScope::kStep; }), "none");
  EXPECT_EQ(problem([](RunSpec& r) {
              r.model.moe.capacity_factor = 1;
              r.model.moe.balance_scope = BalanceScope::kMicrostep;
            }),
            "none");
  EXPECT_EQ(problem([](RunSpec& r) { r.model.moe.drop_order = DropOrder::kScore; }), "none");
  for (const BalanceScope scope : {BalanceScope::kMicrostep, BalanceScope::kStep}) {
    EXPECT_THAT(problem([&](RunSpec& r) {
                  r.model.moe.drop_order = DropOrder::kScore;
                  r.model.moe.balance_scope = scope;
                }),
                StartsWith("model.moe.drop_order: tokens are dropped by score within a sequence"));
  }
  EXPECT_EQ(problem([](RunSpec& r) { r.overlap.slices = 2; }), "none");
  EXPECT_THAT(problem([](RunSpec& r) {
                r.overlap.slices = 2;
                r.model.moe.balance_scope = BalanceScope::kMicrostep;
              }),
              AllOf(StartsWith("model.moe.balance_scope: each of 2 slices would be balanced"),
                    HasSubstr("overlap.slices = 1")));
}

TEST(ValidateMoe, EveryExpertRankHasExperts) {
  EXPECT_THAT(problem([](RunSpec& r) { r.parallel.expert = 7; }),
              StartsWith("parallel.expert: 6 experts cannot be spread over 7 ranks | "
                         "parallel.expert can be at most 6"));
  EXPECT_EQ(problem([](RunSpec& r) { r.parallel.expert_chunks = 6; }), "none");
  EXPECT_THAT(problem([](RunSpec& r) { r.parallel.expert_chunks = 7; }),
              StartsWith("parallel.expert_chunks: 6 experts of a rank cannot"));
  const auto two_ranks = [](int chunks) {  // 3 and 2 of gpt-moe-tiny's 5 experts.
    return problem(
        [&](RunSpec& r) {
          r.parallel.grid.z = r.parallel.expert = 2;
          r.parallel.expert_chunks = chunks;
        },
        "gpt-moe-tiny");
  };
  EXPECT_EQ(two_ranks(2), "none");
  EXPECT_THAT(two_ranks(3), HasSubstr("at most 2 with 5 experts over 2 ranks"));
}

TEST(ValidateMoe, ExpertRanksFitTheGrid) {
  const MoeSpec six{.experts = 6}, many{.experts = 64};
  EXPECT_THAT(possible_expert(many, {1, 1, 1, 12}), ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_THAT(possible_expert(many, {5, 7, 12, 1}), ElementsAre(1, 2, 3, 4, 6, 12));
  // 1, 2 and 4 divide z; 8 and 12 are multiples of it, of which 24 ranks are one.
  EXPECT_THAT(possible_expert(many, {1, 1, 4, 6}), ElementsAre(1, 2, 4, 8, 12, 24));
  EXPECT_THAT(possible_expert(six, {1, 1, 2, 6}), ElementsAre(1, 2, 4, 6));
  const auto on = [](int z, int data, int expert) {
    return problem([&](RunSpec& r) {
      r.parallel.grid = {1, 1, z, data};
      r.parallel.expert = expert;
    });
  };
  EXPECT_EQ(on(4, 1, 2), "none");
  EXPECT_EQ(on(2, 4, 4), "none");
  EXPECT_THAT(on(4, 3, 6),
              StartsWith("parallel.expert: parallel.expert = 6 neither divides z = 4 nor is a "
                         "multiple of it that divides z·data = 12 | on this grid parallel.expert "
                         "can be 1, 2, 4"));
  EXPECT_THAT(on(2, 6, 3), HasSubstr("can be 1, 2, 4, 6"));
  EXPECT_THAT(on(1, 1, 2), HasSubstr("can be 1"));
}

}  // namespace
}  // namespace fourfold
