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

TEST(OverlapPlan, ABlockThatIsComputedAgainIsGatheredAgain) {
  const ModelLayers layers = layers_of("llama");
  const OverlapPlan none = overlap_plan(layers, {}), second = overlap_plan(layers, {false, true});
  EXPECT_EQ(second.forward, none.forward);
  ASSERT_EQ(second.step.size(), none.step.size() + 4);
  // Block 1, the first in backward, runs forward before it runs backward.
  const auto begin = second.step.begin() + static_cast<std::ptrdiff_t>(none.forward.size());
  EXPECT_TRUE(std::equal(begin, begin + 4, none.forward.begin() + 5));
  EXPECT_TRUE(std::equal(begin + 4, second.step.end(),
                         none.step.begin() + static_cast<std::ptrdiff_t>(none.forward.size())));
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
