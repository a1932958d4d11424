#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ckpt/hf_config.h"

namespace fourfold {
namespace {

using nlohmann::ordered_json;

ordered_json id_or_null(std::optional<std::int32_t> id) {
  return id ? ordered_json(*id) : ordered_json(nullptr);
}

/// A family as people and as transformers name it; in the order of HfFamily.
struct FamilyNames {
  const char* name;
  const char* architecture;
  const char* model_type;
};

constexpr std::array<FamilyNames, 6> kFamilies{{
    {"GPT-2", "GPT2LMHeadModel", "gpt2"},
    {"Llama", "LlamaForCausalLM", "llama"},
    {"Qwen3", "Qwen3ForCausalLM", "qwen3"},
    {"Mixtral", "MixtralForCausalLM", "mixtral"},
    {"Qwen3-MoE", "Qwen3MoeForCausalLM", "qwen3_moe"},
    {"OLMoE", "OlmoeForCausalLM", "olmoe"},
}};

const FamilyNames& names_of(HfFamily family) { return kFamilies[static_cast<std::size_t>(family)]; }

/// The family that a model is of if it is of any.
HfFamily nearest_family(const ModelSpec& m) {
  if (m.moe.experts > 0) {
    if (m.qk_norm == QkNorm::kNone) return HfFamily::kMixtral;
    return m.qk_norm == QkNorm::kHead ? HfFamily::kQwen3Moe : HfFamily::kOlmoe;
  }
  if (m.position == Position::kLearned) return HfFamily::kGpt2;
  return m.qk_norm == QkNorm::kNone ? HfFamily::kLlama : HfFamily::kQwen3;
}

/// What a model of layers as GPT-2's has that GPT-2 has not; empty: nothing.
std::string beyond_gpt2(const ModelSpec& m) {
  if (m.norm != Norm::kLayerNorm) return "RMSNorm (model.norm)";
  if (m.gated()) return "SwiGLU (model.activation)";
  if (!m.bias) return "form without biases (model.bias)";
  if (m.kv_heads != m.heads) return "shared key/value heads (model.kv_heads)";
  if (m.query_width() != m.hidden) return "head width of its own (model.head_dim)";
  if (m.qk_norm != QkNorm::kNone) return "norm of queries and keys (model.qk_norm)";
  return "";
}

std::string beyond_llama_like(const ModelSpec& m, HfFamily family) {
  if (m.position == Position::kLearned) return "learned positions (model.position)";
  if (m.norm != Norm::kRmsNorm) return "LayerNorm (model.norm)";
  if (!m.gated()) return "GELU (model.activation)";
  if (m.bias && family != HfFamily::kLlama) return "biases (model.bias)";
  if (family == HfFamily::kQwen3 && m.qk_norm == QkNorm::kWhole) {
    return "norm of all heads together (model.qk_norm)";
  }
  if (family == HfFamily::kOlmoe && m.query_width() != m.hidden) {
    return "head width of its own (model.head_dim)";
  }
  return "";
}

std::string beyond_experts(const MoeSpec& moe, HfFamily family) {
  const bool some_dense = family == HfFamily::kQwen3Moe;
  if (moe.every != 1 && !some_dense) return "dense blocks (model.moe.every)";
  if (moe.first_dense > 0 && !some_dense) return "dense blocks (model.moe.first_dense)";
  if (moe.shared_experts > 0) return "shared experts (model.moe.shared_experts)";
  if (moe.score != RouterScore::kSoftmax) return "sigmoid scores (model.moe.score)";
  if (!moe.renormalise && family == HfFamily::kMixtral) {
    return "weights as they are (model.moe.renormalise)";
  }
  if (moe.balance == Balance::kLossFree) return "bias of experts (model.moe.balance)";
  return "";
}

constexpr const char* kWrittenFor = "4.40.0";  ///< The oldest transformers that reads all of it.

/// What every family's config.json holds.
ordered_json common_members(const ModelSpec& model, HfFamily family, DType dtype,
                            std::optional<std::int32_t> end_of_text) {
  const FamilyNames& names = names_of(family);
  const char* name = dtype == DType::kBF16 ? "bfloat16" : "float32";
  return {{"architectures", ordered_json::array({names.architecture})},
          {"model_type", names.model_type},
          {"vocab_size", model.vocab},
          {"initializer_range", model.init_std},
          {"tie_word_embeddings", model.tie_embeddings},
          {"bos_token_id", id_or_null(end_of_text)},
          {"eos_token_id", id_or_null(end_of_text)},
          {"use_cache", true},
          // Transformers 4 reads the first, 5 the second.
          {"torch_dtype", name},
          {"dtype", name},
          {"transformers_version", kWrittenFor}};
}

void add_experts(const MoeSpec& moe, HfFamily family, ordered_json& config) {
  const bool mixtral = family == HfFamily::kMixtral;
  config.update({{mixtral ? "num_local_experts" : "num_experts", moe.experts},
                 {"num_experts_per_tok", moe.top_k},
                 {"router_aux_loss_coef", moe.aux_coef},
                 {"output_router_logits", false}});
  if (mixtral) {
    config.update({{"router_jitter_noise", moe.jitter}, {"sliding_window", nullptr}});
    return;
  }
  config["norm_topk_prob"] = moe.renormalise;
  if (family != HfFamily::kQwen3Moe) return;
  std::vector<int> dense(static_cast<std::size_t>(moe.first_dense));
  std::iota(dense.begin(), dense.end(), 0);
  config.update({{"moe_intermediate_size", moe.ffn},
                 {"decoder_sparse_step", moe.every},
                 {"mlp_only_layers", dense}});
}

}  // namespace

const char* hf_family_name(HfFamily family) { return names_of(family).name; }

Result<HfFamily> hf_family_of(const ModelSpec& m) {
  const HfFamily family = nearest_family(m);
  std::string other = family == HfFamily::kGpt2 ? beyond_gpt2(m) : beyond_llama_like(m, family);
  if (other.empty() && m.moe.experts > 0) other = beyond_experts(m.moe, family);
  if (other.empty()) return family;
  const char* positions = m.position == Position::kLearned ? "learned" : "rotary";
  return Error(ErrorKind::kData,
               fmt::format("a model with {} is exported as {}, which has no {}",
                           m.moe.experts > 0 ? "experts" : fmt::format("{} positions", positions),
                           names_of(family).name, other),
               "docs/cookbook.md says which models can be exported");
}

std::string hf_config_text(const ModelSpec& m, HfFamily family, DType dtype,
                           std::optional<std::int32_t> end_of_text) {
  auto config = common_members(m, family, dtype, end_of_text);
  if (family == HfFamily::kGpt2) {
    config.update({{"n_positions", m.seq_len},
                   {"n_ctx", m.seq_len},
                   {"n_embd", m.hidden},
                   {"n_layer", m.layers},
                   {"n_head", m.heads},
                   {"n_inner", m.ffn},
                   {"activation_function", "gelu_new"},
                   {"layer_norm_epsilon", m.norm_eps},
                   {"resid_pdrop", m.dropout},
                   {"embd_pdrop", m.dropout},
                   {"attn_pdrop", m.dropout},
                   {"scale_attn_weights", true}});
    return config.dump(2) + "\n";
  }
  const bool own_width = family == HfFamily::kMixtral || family == HfFamily::kOlmoe;
  config.update({{"max_position_embeddings", m.seq_len},
                 {"hidden_size", m.hidden},
                 {"num_hidden_layers", m.layers},
                 {"num_attention_heads", m.heads},
                 {"num_key_value_heads", m.kv_heads},
                 {"head_dim", m.head_dim},
                 {"intermediate_size", own_width ? m.moe.ffn : m.ffn},
                 {"hidden_act", "silu"},
                 {"rms_norm_eps", m.norm_eps},
                 {"attention_dropout", 0.0},
                 // Transformers 4 reads the first two, 5 the third.
                 {"rope_theta", m.rope_theta},
                 {"rope_scaling", nullptr},
                 {"rope_parameters", {{"rope_theta", m.rope_theta}, {"rope_type", "default"}}}});
  if (m.moe.experts > 0) add_experts(m.moe, family, config);
  if (family == HfFamily::kMixtral) return config.dump(2) + "\n";
  config["attention_bias"] = m.bias;
  if (family == HfFamily::kLlama) config["mlp_bias"] = m.bias;
  return config.dump(2) + "\n";
}

std::string hf_generation_config_text(std::optional<std::int32_t> end_of_text) {
  const ordered_json config = {{"_from_model_config", true},
                               {"bos_token_id", id_or_null(end_of_text)},
                               {"eos_token_id", id_or_null(end_of_text)},
                               {"transformers_version", kWrittenFor}};
  return config.dump(2) + "\n";
}

}  // namespace fourfold
