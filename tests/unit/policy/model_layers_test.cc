#include "policy/model_layers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "spec/counts.h"
#include "spec/presets.h"

namespace fourfold {
namespace {

TEST(ModelLayers, HoldEveryParameterOnce) {
  for (const std::string& name : preset_names()) {
    const ModelSpec spec = *find_preset(name);
    const auto all =
        parameters_of(model_layers(spec, GridShape(1, 1, 1, 1), HeadLayout::kReduceLogits));
    std::int64_t elements = 0;
    std::set<std::string> names;
    for (const ParameterSpec& p : all) {
      elements += p.layout.elements();
      names.insert(p.name);
    }
    EXPECT_EQ(elements, count_parameters(spec).total()) << name;
    EXPECT_EQ(names.size(), all.size()) << name;
  }
}

TEST(ModelLayers, ShareKeyValueHeadsWhereXHasMoreRanks) {
  ModelSpec spec = *family_defaults("llama");
  spec.layers = 1;
  spec.hidden = 64;
  spec.heads = 8;
  spec.kv_heads = 2;
  spec.vocab = 100;
  spec.seq_len = 16;
  complete_model(spec);
  auto parts = [&](int x) {
    const auto layers = model_layers(spec, GridShape(x, 1, 1, 1), HeadLayout::kReduceLogits);
    return layers.blocks[0].qkv.members[1].parts;
  };
  EXPECT_EQ(parts(2), 0);
  EXPECT_EQ(parts(4), 2);
}

TEST(ModelLayers, ResidualProjectionsStartSmaller) {
  const ModelSpec spec = *find_preset("gpt2-124m");
  const auto layers = model_layers(spec, GridShape(), HeadLayout::kReduceLogits);
  EXPECT_FLOAT_EQ(layers.blocks[3].down.init_std, 0.02f / std::sqrt(24.0f));
  EXPECT_FLOAT_EQ(layers.blocks[3].up.init_std, 0.02f);
}

}  // namespace
}  // namespace fourfold
