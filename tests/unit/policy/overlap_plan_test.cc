#include "policy/overlap_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/presets.h"

namespace fourfold {
namespace {

using testing::ElementsAre;

ModelLayers layers_of(const char* family) {
  ModelSpec spec = *family_defaults(family);
  spec.layers = 2;
  spec.hidden = 8;
  spec.heads = 2;
  spec.vocab = 11;
  spec.seq_len = 4;
  complete_model(spec);
  return model_layers(spec, GridShape(1, 1, 1, 1), HeadLayout::kReduceLogits);
}

TEST(OverlapPlan, GathersInTheOrderOfUse) {
  const ModelLayers layers = layers_of("llama");
  const std::string table = token_table_spec(layers.embedding).name, head = layers.head->name;
  const auto name = [&](int block, int matrix) {
    const BlockLayers& b = layers.blocks[static_cast<std::size_t>(block)];
    const LinearSpec* linears[] = {&b.qkv, &b.projection, &b.up, &b.down};
    return weight_specs(*linears[matrix]).front().name;
  };
  const OverlapPlan plan = overlap_plan(layers, {});
  EXPECT_THAT(plan.forward, ElementsAre(table, name(0, 0), name(0, 1), name(0, 2), name(0, 3),
                                        name(1, 0), name(1, 1), name(1, 2), name(1, 3), head));
  // Backward goes from the last to the first; the head has done its part.
  std::vector<std::string> step = plan.forward;
  for (const int block : {1, 0}) {
    for (const int matrix : {3, 2, 1, 0}) step.push_back(name(block, matrix));
  }
  EXPECT_EQ(plan.step, step);
}

TEST(OverlapPlan, WhatIsComputedAgainIsGatheredAgain) {
  const ModelLayers layers = layers_of("llama");
  const OverlapPlan none = overlap_plan(layers, {});
  const BlockLayers& block = layers.blocks[1];
  const std::string qkv = weight_specs(block.qkv).front().name;
  const std::string projection = weight_specs(block.projection).front().name;
  const std::string up = weight_specs(block.up).front().name;
  auto again = [&](Recompute recompute, bool keep_collectives, GridShape grid) {
    OverlapSpec overlap;
    overlap.keep_collectives = keep_collectives;
    const KeptActivations kept = kept_activations(recompute, overlap, grid);
    const OverlapPlan plan = overlap_plan(layers, {KeptActivations(), kept});
    EXPECT_EQ(plan.forward, none.forward);
    // Block 1, the first in backward, computes again before it runs backward.
    const auto begin = plan.step.begin() + static_cast<std::ptrdiff_t>(none.forward.size());
    const auto end = begin + static_cast<std::ptrdiff_t>(plan.step.size() - none.step.size());
    EXPECT_TRUE(std::equal(end, plan.step.end(),
                           none.step.begin() + static_cast<std::ptrdiff_t>(none.forward.size())));
    return std::vector<std::string>(begin, end);
  };
  const GridShape one(1, 1, 1, 1);
  EXPECT_THAT(again(Recompute::kNone, false, one), ElementsAre());
  EXPECT_THAT(again(Recompute::kAttention, false, one), ElementsAre(qkv));
  EXPECT_THAT(again(Recompute::kMlp, false, one), ElementsAre(up));
  EXPECT_THAT(again(Recompute::kFull, false, one), ElementsAre(qkv, projection, up));
  // What one rank computes alone costs no communication.
  EXPECT_THAT(again(Recompute::kFull, true, one), ElementsAre(qkv, projection, up));
  EXPECT_THAT(again(Recompute::kFull, true, {2, 1, 2, 2}), ElementsAre(qkv, up));
  EXPECT_THAT(again(Recompute::kFull, true, {1, 2, 1, 1}), ElementsAre(projection));
  EXPECT_THAT(again(Recompute::kFull, true, {2, 2, 1, 1}), ElementsAre());
}

TEST(OverlapPlan, TiedAndLearnedTablesAreUsedWhereTheyAre) {
  const ModelLayers layers = layers_of("gpt");
  const OverlapPlan plan = overlap_plan(layers, {});
  EXPECT_EQ(plan.forward[0], token_table_spec(layers.embedding).name);
  EXPECT_EQ(plan.forward[1], position_table_spec(layers.embedding).name);
  EXPECT_EQ(plan.forward.back(), plan.forward[0]) << "the head is the embedding";
}

}  // namespace
}  // namespace fourfold
