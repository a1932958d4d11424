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

TEST(ModelLayers, HaveAllParametersOfEachPreset) {
  for (const std::string& name : preset_names()) {
    const ModelSpec model = *find_preset(name);
    if (model.moe.experts > 0) continue;  // The layers have no experts yet.
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
