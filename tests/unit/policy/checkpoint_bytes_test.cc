#include "policy/checkpoint_bytes.h"

#include <gtest/gtest.h>

#include "policy/model_layers.h"
#include "spec/counts.h"
#include "spec/presets.h"

namespace fourfold {
namespace {

TEST(CheckpointBytes, TwelveOrFourteenBytesAParameter) {
  const ModelSpec gpt2 = *find_preset("gpt2-124m");
  EXPECT_EQ(checkpoint_bytes(gpt2, Precision::kFp32).total(), 12 * std::int64_t{124439808});
  const CheckpointBytes bf16 = checkpoint_bytes(gpt2, Precision::kBf16);
  EXPECT_EQ(bf16.weight, 2 * std::int64_t{124439808});
  EXPECT_EQ(bf16.total(), 14 * std::int64_t{124439808});
}

// The checkpoint papers' C_full, and its part that they cut.
TEST(CheckpointBytes, HaveAllExperts) {
  const ModelSpec small = *find_preset("gpt-125m-8e"), large = *find_preset("gpt-350m-16e");
  EXPECT_EQ(checkpoint_bytes(small, Precision::kBf16).total(), 4'519'968'768);
  EXPECT_EQ(checkpoint_bytes(large, Precision::kBf16).total(), 26'137'825'280);
  EXPECT_EQ(expert_bytes(small, Precision::kBf16).total(), 14 * std::int64_t{226'676'736});
  EXPECT_EQ(expert_bytes(small, Precision::kFp32).weight, 0);
  EXPECT_EQ(expert_bytes(large, Precision::kBf16).master, 4 * std::int64_t{1'611'595'776});
  EXPECT_EQ(expert_bytes(*find_preset("gpt2-124m"), Precision::kBf16).total(), 0);
}

TEST(ModelLayers, HaveAllParametersOfEachPreset) {
  for (const std::string& name : preset_names()) {
    const ModelSpec model = *find_preset(name);
    std::int64_t elements = 0;
    for (const auto& p :
         parameters_of(model_layers(model, GridShape(), HeadLayout::kReduceLogits))) {
      elements += p.layout.elements();
    }
    EXPECT_EQ(elements, count_parameters(model).total()) << name;
  }
}

}  // namespace
}  // namespace fourfold
