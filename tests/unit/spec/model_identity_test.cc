#include "spec/model_identity.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "spec/presets.h"

namespace fourfold {
namespace {

// Checkpoints hold these: a change would lock every run out of its own.
TEST(ModelIdentity, HashesOfDenseModelsStay) {
  EXPECT_EQ(model_hash(*find_preset("gpt-tiny")), "519d0bb4");
  EXPECT_EQ(model_hash(*find_preset("gpt2-124m")), "37b75d58");
  EXPECT_EQ(model_hash(*find_preset("llama-tiny")), "d04021f8");
  EXPECT_EQ(model_hash(*find_preset("llama-3-8b")), "b8931a74");
}

TEST(ModelIdentity, ExpertsChangeIt) {
  const ModelSpec dense = *find_preset("gpt-tiny"), moe = *find_preset("gpt-moe-tiny");
  std::set<std::string> hashes{model_hash(dense), model_hash(moe)};
  const auto changed = [&](auto change) {
    ModelSpec model = moe;
    change(model.moe);
    return model_hash(model);
  };
  hashes.insert(changed([](MoeSpec& m) { m.experts = 6; }));
  hashes.insert(changed([](MoeSpec& m) { m.top_k = 3; }));
  hashes.insert(changed([](MoeSpec& m) { m.ffn = 251; }));
  hashes.insert(changed([](MoeSpec& m) { m.every = 2; }));
  hashes.insert(changed([](MoeSpec& m) { m.first_dense = 1; }));
  hashes.insert(changed([](MoeSpec& m) { m.shared_experts = 1; }));
  hashes.insert(changed([](MoeSpec& m) { m.shared_gate = true; }));
  hashes.insert(changed([](MoeSpec& m) { m.score = RouterScore::kSigmoid; }));
  hashes.insert(changed([](MoeSpec& m) { m.renormalise = false; }));
  EXPECT_EQ(hashes.size(), 11u);
}

TEST(ModelIdentity, HowExpertsAreBalancedDoesNot) {
  ModelSpec model = *find_preset("gpt-moe-tiny");
  const std::string hash = model_hash(model);
  model.moe.capacity_factor = 1.25;
  model.moe.drop_order = DropOrder::kScore;
  model.moe.balance = Balance::kLossFree;
  model.moe.balance_scope = BalanceScope::kStep;
  model.moe.aux_coef = model.moe.z_coef = model.moe.bias_rate = model.moe.jitter = 0.5;
  EXPECT_EQ(model_hash(model), hash);
}

TEST(ModelIdentity, NamesSayParameters) {
  EXPECT_EQ(model_name(*find_preset("gpt2-124m")), "gpt2-124m, 124,439,808 parameters");
  EXPECT_EQ(model_name(*find_preset("gpt-125m-8e")),
            "gpt-125m-8e, 322,854,912 parameters (124,512,768 active)");
}

}  // namespace
}  // namespace fourfold
