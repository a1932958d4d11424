#include "ckpt/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/counts.h"
#include "spec/presets.h"

namespace fourfold {
namespace {

using ::testing::HasSubstr;

ModelSpec read(const std::string& text) { return parse_hf_config(text, "config.json").value(); }

std::string error_of(const std::string& text) {
  const auto model = parse_hf_config(text, "config.json");
  if (model.ok()) return "accepted";
  EXPECT_EQ(model.error().kind(), ErrorKind::kData);
  return model.error().what();
}

TEST(HfConfig, ReadsThePublishedGpt2) {
  // What the hub's gpt2 has, apart from members that matter to no model.
  const ModelSpec model = read(R"({"activation_function": "gelu_new", "architectures":
    ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256, "embd_pdrop": 0.1,
    "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
    "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
    "n_positions": 1024, "resid_pdrop": 0.1, "summary_type": "cls_index",
    "task_specific_params": {"text-generation": {"max_length": 50}}, "vocab_size": 50257})");
  ModelSpec wanted = *find_preset("gpt2-124m");
  wanted.preset.clear();
  wanted.dropout = 0.1;
  EXPECT_EQ(model, wanted);
  EXPECT_EQ(read(R"({"model_type": "gpt2"})"), wanted) << "the defaults";
}

TEST(HfConfig, ReadsLlamaOfBothVersions) {
  const std::string shape = R"("model_type": "llama", "hidden_size": 2048, "head_dim": 64,
    "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
    "hidden_act": "silu", "rms_norm_eps": 1e-05, "attention_bias": false, "mlp_bias": false,
    "pretraining_tp": 1, "tie_word_embeddings": true)";
  ModelSpec wanted = *find_preset("llama-3.2-1b");
  wanted.preset.clear();
  EXPECT_EQ(read("{" + shape + R"(, "rope_theta": 500000.0, "rope_scaling": null})"), wanted);
  EXPECT_EQ(read("{" + shape + R"(, "rope_parameters": {"rope_theta": 500000.0,
                 "rope_type": "default"}})"),
            wanted);
  const ModelSpec defaults = read(R"({"model_type": "llama"})");
  EXPECT_FALSE(defaults.tie_embeddings);
  EXPECT_EQ(defaults.kv_heads, 32);
  EXPECT_EQ(defaults.norm_eps, 1e-6);
}

TEST(HfConfig, WhatIsWrittenIsReadBack) {
  for (const char* name : {"gpt-tiny", "gpt2-1.5b", "llama-tiny", "llama-3-8b", "llama-100m"}) {
    ModelSpec model = *find_preset(name);
    model.preset.clear();
    model.norm_eps = 3e-5;
    model.init_std = 0.013;
    if (model.family == "gpt") model.dropout = 0.3;
    if (model.family == "llama") model.bias = true;
    const HfFamily family = hf_family_of(model).value();
    EXPECT_EQ(read(hf_config_text(model, family, DType::kBF16, 7)), model) << name;
  }
  for (const char* name : {"qwen3-moe-small", "olmoe-1b-7b", "mixtral-small"}) {
    ModelSpec model = *find_preset(name);
    model.preset.clear();
    model.moe.aux_coef = 0.03;
    model.moe.z_coef = 0;  // Has no place in the file.
    const HfFamily family = hf_family_of(model).value();
    if (family != HfFamily::kQwen3Moe) model.ffn = model.moe.ffn;
    if (family == HfFamily::kQwen3Moe) {
      model.moe.every = 3;
      model.moe.first_dense = 2;
    }
    EXPECT_EQ(read(hf_config_text(model, family, DType::kF32, {})), model) << name;
  }
  ModelSpec dense = *find_preset("llama-tiny");
  dense.preset.clear();
  dense.qk_norm = QkNorm::kHead;
  EXPECT_EQ(read(hf_config_text(dense, HfFamily::kQwen3, DType::kF32, {})), dense);
  ModelSpec untied = *find_preset("gpt-tiny");
  untied.preset.clear();
  untied.tie_embeddings = false;
  EXPECT_EQ(read(hf_config_text(untied, HfFamily::kGpt2, DType::kF32, {})), untied);
}

/// What the hub's Qwen3-30B-A3B has, apart from members that matter to no model.
constexpr const char* kQwen3Moe = R"("architectures": ["Qwen3MoeForCausalLM"],
  "attention_bias": false, "attention_dropout": 0.0, "decoder_sparse_step": 1, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 6144,
  "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [],
  "model_type": "qwen3_moe", "moe_intermediate_size": 768, "norm_topk_prob": true,
  "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
  "num_hidden_layers": 48, "num_key_value_heads": 4, "output_router_logits": false,
  "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000.0,
  "router_aux_loss_coef": 0.001, "sliding_window": null, "tie_word_embeddings": false,
  "use_sliding_window": false, "vocab_size": 151936)";

TEST(HfConfig, ReadsThePublishedModelsWithExperts) {
  const ModelSpec qwen = read("{" + std::string(kQwen3Moe) + "}");
  EXPECT_EQ(count_parameters(qwen).total(), 30'532'122'624);
  EXPECT_EQ(qwen.qk_norm, QkNorm::kHead);
  EXPECT_TRUE(qwen.moe.renormalise);
  // The defaults of a family are OLMoE-1B-7B, but for the width of an expert.
  const ModelSpec olmoe = read(R"({"model_type": "olmoe", "intermediate_size": 1024})");
  EXPECT_EQ(count_parameters(olmoe).total(), 6'919'161'856);
  EXPECT_EQ(olmoe.qk_norm, QkNorm::kWhole);
  EXPECT_FALSE(olmoe.moe.renormalise);
}

TEST(HfConfig, DenseBlocksOfQwen3Moe) {
  std::string text = "{" + std::string(kQwen3Moe) + "}";
  text.replace(text.find("\"mlp_only_layers\": []"), 21, "\"mlp_only_layers\": [0, 1]");
  text.replace(text.find("\"decoder_sparse_step\": 1"), 24, "\"decoder_sparse_step\": 3");
  const ModelSpec model = read(text);
  EXPECT_EQ(model.moe.first_dense, 2);
  EXPECT_EQ(model.moe.every, 3);
  text.replace(text.find("[0, 1]"), 6, "[0, 2]");
  EXPECT_THAT(error_of(text), HasSubstr("mlp_only_layers is not built yet"));
  text.replace(text.find("[0, 2]"), 6, "true");
  EXPECT_THAT(error_of(text), HasSubstr("mlp_only_layers is no list"));
}

TEST(HfConfig, RefusesWhatWouldChangeTheOutput) {
  const std::pair<const char*, const char*> gpt2[] = {
      {R"("activation_function": "gelu")", R"(activation_function = "gelu" is not built yet)"},
      {R"("activation_function": "relu")", "activation_function"},
      {R"("scale_attn_weights": false)", "scale_attn_weights = false"},
      {R"("scale_attn_by_inverse_layer_idx": true)", "scale_attn_by_inverse_layer_idx"},
      {R"("add_cross_attention": true)", "add_cross_attention"},
      {R"("resid_pdrop": 0.2)", "embd_pdrop differs from resid_pdrop"},
      {R"("n_head": 7)", "n_head 7 does not divide n_embd 768"},
      {R"("quantization_config": {"bits": 4})", "quantization_config is not built yet"},
  };
  for (const auto& [member, cause] : gpt2) {
    EXPECT_THAT(error_of(std::string(R"({"model_type": "gpt2", )") + member + "}"),
                HasSubstr(cause));
  }
  const std::pair<const char*, const char*> llama[] = {
      {R"("rope_scaling": {"type": "linear", "factor": 2.0})", "rope_scaling."},
      {R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})", "rope_scaling."},
      {R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4})",
       R"(rope_parameters.rope_type = "yarn" is not built yet)"},
      {R"("rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5})",
       "rope_parameters.partial_rotary_factor = 0.5"},
      {R"("rope_scaling": 3)", "rope_scaling = 3"},
      {R"("hidden_act": "gelu")", "hidden_act"},
      {R"("attention_bias": true)", "attention_bias and mlp_bias differ"},
      {R"("mlp_bias": true)", "attention_bias and mlp_bias differ"},
      {R"("attention_dropout": 0.1)", "attention_dropout is not 0"},
      {R"("num_attention_heads": 33)", "does not divide hidden_size"},
  };
  for (const auto& [member, cause] : llama) {
    EXPECT_THAT(error_of(std::string(R"({"model_type": "llama", )") + member + "}"),
                HasSubstr(cause));
  }
  const std::pair<const char*, const char*> others[] = {
      {R"("qwen3", "use_sliding_window": true)", "use_sliding_window = true"},
      {R"("qwen3_moe", "use_sliding_window": true)", "use_sliding_window = true"},
      {R"("olmoe", "clip_qkv": 8.0)", "clip_qkv = 8.0"},
      {R"("olmoe", "num_experts": 6)", "num_experts_per_tok 8 is more than num_experts 6"},
  };
  for (const auto& [members, cause] : others) {
    EXPECT_THAT(error_of(std::string(R"({"model_type": )") + members + "}"), HasSubstr(cause));
  }
}

TEST(HfConfig, RefusesOtherFamilies) {
  for (const std::string type : {"qwen2_moe", "olmo2", "mistral"}) {
    EXPECT_THAT(error_of("{\"model_type\": \"" + type + "\"}"),
                HasSubstr("model_type = \"" + type + "\" is not built yet"));
  }
  EXPECT_THAT(error_of("{}"), HasSubstr("has no model_type"));
}

TEST(HfConfig, RefusesWhatIsDamaged) {
  EXPECT_THAT(error_of(""), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error_of(R"({"model_type": 3})"), HasSubstr("model_type is not a text"));
  for (const char* value : {"0", "-1", "1.5", "\"12\"", "[]", "99999999999", "true"}) {
    EXPECT_THAT(error_of(std::string(R"({"model_type": "gpt2", "n_layer": )") + value + "}"),
                HasSubstr("n_layer is not a size"))
        << value;
  }
  EXPECT_THAT(error_of(R"({"model_type": "gpt2", "layer_norm_epsilon": "x"})"),
              HasSubstr("layer_norm_epsilon is not a number"));
  EXPECT_THAT(error_of(R"({"model_type": "llama", "tie_word_embeddings": 1})"),
              HasSubstr("tie_word_embeddings is neither true nor false"));
  // Nested deeper than a stack is.
  const std::string deep(300000, '[');
  EXPECT_THAT(error_of(R"({"model_type": "llama", "rope_scaling": )" + deep +
                       std::string(300000, ']') + "}"),
              HasSubstr("rope_scaling is not built yet"));
}

TEST(HfConfig, MixtralHasDefaultsAndLimitsOfItsOwn) {
  const ModelSpec model = parse_hf_config(R"({"model_type": "mixtral"})", "config.json").value();
  EXPECT_EQ(model.moe.experts, 8);
  EXPECT_EQ(model.moe.top_k, 2);
  EXPECT_EQ(model.moe.ffn, 14336);
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.rope_theta, 1e6);
  EXPECT_EQ(count_parameters(model).total(), 46'702'792'704);  // "8x7B".
  EXPECT_THAT(error_of(R"({"model_type": "mixtral", "sliding_window": 4096})"),
              HasSubstr("sliding_window"));
  EXPECT_THAT(error_of(R"({"model_type": "mixtral", "num_experts_per_tok": 9})"),
              HasSubstr("is more than num_local_experts 8"));
}

TEST(HfConfig, ExpertsThatMixtralDoesNotHave) {
  const auto refused = [](auto change) {
    ModelSpec model = *find_preset("mixtral-small");
    change(model);
    const auto family = hf_family_of(model);
    return family.ok() ? "accepted" : std::string(family.error().what());
  };
  EXPECT_EQ(refused([](ModelSpec&) {}), "accepted");
  EXPECT_THAT(refused([](ModelSpec& m) { m.position = Position::kLearned; }),
              HasSubstr("model.position"));
  EXPECT_THAT(refused([](ModelSpec& m) { m.bias = true; }), HasSubstr("model.bias"));
  EXPECT_THAT(refused([](ModelSpec& m) { m.norm = Norm::kLayerNorm; }), HasSubstr("model.norm"));
  EXPECT_THAT(refused([](ModelSpec& m) { m.activation = Activation::kGelu; }),
              HasSubstr("model.activation"));
  EXPECT_THAT(refused([](ModelSpec& m) { m.moe.every = 2; }), HasSubstr("moe.every"));
  EXPECT_THAT(refused([](ModelSpec& m) { m.moe.first_dense = 1; }), HasSubstr("first_dense"));
  EXPECT_THAT(refused([](ModelSpec& m) { m.moe.shared_experts = 1; }), HasSubstr("shared_experts"));
  EXPECT_THAT(refused([](ModelSpec& m) { m.moe.score = RouterScore::kSigmoid; }),
              HasSubstr("moe.score"));
  EXPECT_THAT(refused([](ModelSpec& m) { m.moe.renormalise = false; }), HasSubstr("renormalise"));
  EXPECT_THAT(refused([](ModelSpec& m) { m.moe.balance = Balance::kLossFree; }),
              HasSubstr("moe.balance"));
}

TEST(HfConfig, TheFamilyGoesByTheNormOfQueriesAndKeys) {
  ModelSpec model = *find_preset("mixtral-small");
  EXPECT_EQ(hf_family_of(model).value(), HfFamily::kMixtral);
  model.qk_norm = QkNorm::kHead;
  model.moe.every = 2;
  model.moe.renormalise = false;
  EXPECT_EQ(hf_family_of(model).value(), HfFamily::kQwen3Moe);
  model.qk_norm = QkNorm::kWhole;
  EXPECT_THAT(hf_family_of(model).error().what(), HasSubstr("OLMoE, which has no dense blocks"));
  model.moe.every = 1;
  EXPECT_EQ(hf_family_of(model).value(), HfFamily::kOlmoe);
  model.head_dim = 80;
  EXPECT_THAT(hf_family_of(model).error().what(), HasSubstr("model.head_dim"));
  model = *find_preset("llama-tiny");
  model.qk_norm = QkNorm::kHead;
  EXPECT_EQ(hf_family_of(model).value(), HfFamily::kQwen3);
  model.bias = true;
  EXPECT_THAT(hf_family_of(model).error().what(), HasSubstr("Qwen3, which has no biases"));
  model.bias = false;
  model.qk_norm = QkNorm::kWhole;
  EXPECT_THAT(hf_family_of(model).error().what(), HasSubstr("model.qk_norm"));
  model = *find_preset("gpt-tiny");
  model.qk_norm = QkNorm::kHead;
  EXPECT_THAT(hf_family_of(model).error().what(), HasSubstr("GPT-2, which has no norm of queries"));
}

TEST(HfConfig, AModelThatNoFamilyHas) {
  const auto refused = [](const ModelSpec& model) {
    const auto family = hf_family_of(model);
    return family.ok() ? "accepted" : std::string(family.error().what());
  };
  ModelSpec model = *find_preset("gpt-tiny");
  model.bias = false;
  EXPECT_THAT(refused(model), HasSubstr("model.bias"));
  model = *find_preset("gpt-tiny");
  model.kv_heads = 2;
  EXPECT_THAT(refused(model), HasSubstr("model.kv_heads"));
  model = *find_preset("gpt-tiny");
  model.head_dim = 5;
  EXPECT_THAT(refused(model), HasSubstr("model.head_dim"));
  model = *find_preset("gpt-tiny");
  model.activation = Activation::kSwiGlu;
  EXPECT_THAT(refused(model), HasSubstr("model.activation"));
  model = *find_preset("llama-tiny");
  model.norm = Norm::kLayerNorm;
  EXPECT_THAT(refused(model), HasSubstr("model.norm"));
  model = *find_preset("llama-tiny");
  model.position = Position::kLearned;
  EXPECT_THAT(refused(model), HasSubstr("model.norm"));
}

}  // namespace
}  // namespace fourfold
