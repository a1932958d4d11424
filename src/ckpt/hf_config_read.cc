#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "ckpt/hf_config.h"
#include "spec/presets.h"

namespace fourfold {
namespace {

using nlohmann::json;

constexpr const char* kNotBuilt =
    "GPT-2, Llama, Qwen3, Mixtral, Qwen3-MoE and OLMoE, as in docs/cookbook.md, can be imported";

/// The members of a config.json, with the messages for what they should not be.
class Members {
 public:
  Members(const json& object, std::string file) : object_(object), file_(std::move(file)) {}

  Error refused(const std::string& cause, const std::string& hint) const {
    return Error(ErrorKind::kData, fmt::format("{}: {}", file_, cause),
                 hint.empty() ? "fetch or save the model folder again" : hint);
  }
  Error not_built(const std::string& name) const { return not_built(name, object_.at(name)); }
  /// `value` is shown where it is one; what nests could be deep.
  Error not_built(const std::string& name, const json& value) const {
    constexpr std::size_t kMaxShown = 120;
    std::string shown = name;
    if (value.is_primitive()) {
      shown += " = " + value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
      if (shown.size() > kMaxShown) shown = shown.substr(0, kMaxShown) + "...";
    }
    return refused(shown + " is not built yet", kNotBuilt);
  }

  bool has(const char* name) const { return object_.contains(name) && !object_.at(name).is_null(); }

  /// A size; `otherwise` where the member is absent or null.
  std::int64_t size(const char* name, std::int64_t otherwise) const {
    if (!has(name)) return otherwise;
    constexpr std::uint64_t kMax = 1'000'000'000;
    const json& value = object_.at(name);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() == 0 ||
        value.get<std::uint64_t>() > kMax) {
      throw refused(fmt::format("{} is not a size", name), "a whole number of at least 1");
    }
    return value.get<std::int64_t>();
  }
  int small_size(const char* name, int otherwise) const {
    return static_cast<int>(size(name, otherwise));
  }
  double number(const char* name, double otherwise) const {
    if (!has(name)) return otherwise;
    if (!object_.at(name).is_number()) throw refused(fmt::format("{} is not a number", name), "");
    return object_.at(name).get<double>();
  }
  bool flag(const char* name, bool otherwise) const {
    if (!has(name)) return otherwise;
    if (!object_.at(name).is_boolean()) {
      throw refused(fmt::format("{} is neither true nor false", name), "");
    }
    return object_.at(name).get<bool>();
  }
  std::string text(const char* name, const char* otherwise) const {
    if (!has(name)) return otherwise;
    if (!object_.at(name).is_string()) throw refused(fmt::format("{} is not a text", name), "");
    return object_.at(name).get<std::string>();
  }

  /// Refuses a member that is there and has another value.
  void require(const char* name, bool only, bool otherwise) const {
    if (flag(name, otherwise) != only) throw not_built(name);
  }
  void require_absent(const char* name) const {
    if (has(name)) throw not_built(name);
  }

 private:
  const json& object_;
  std::string file_;
};

/// The base of unscaled rotary positions: transformers 4 has rope_theta and rope_scaling, 5 one
/// object rope_parameters.
double rope_theta(const json& object, const Members& members, double otherwise) {
  double theta = members.number("rope_theta", otherwise);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!members.has(name)) continue;
    const json& value = object.at(name);
    if (!value.is_object()) throw members.not_built(name);
    for (const auto& [key, setting] : value.items()) {
      const bool type = key == "rope_type" || key == "type";
      if (key == "rope_theta" && setting.is_number()) {
        theta = setting.get<double>();
      } else if (!(type && setting == "default") &&
                 !(key == "partial_rotary_factor" && setting == 1.0)) {
        throw members.not_built(fmt::format("{}.{}", name, key), setting);
      }
    }
  }
  return theta;
}

ModelSpec gpt2_model(const Members& m) {
  ModelSpec model = *family_defaults("gpt");
  model.vocab = m.size("vocab_size", 50257);
  model.seq_len = m.size("n_positions", m.size("n_ctx", 1024));
  model.hidden = m.size("n_embd", 768);
  model.layers = m.small_size("n_layer", 12);
  model.heads = model.kv_heads = m.small_size("n_head", 12);
  model.ffn = m.size("n_inner", 4 * model.hidden);
  if (model.hidden % model.heads != 0) {
    throw m.refused(fmt::format("n_head {} does not divide n_embd {}", model.heads, model.hidden),
                    "");
  }
  model.head_dim = model.hidden / model.heads;
  model.norm_eps = m.number("layer_norm_epsilon", 1e-5);
  model.init_std = m.number("initializer_range", 0.02);
  model.tie_embeddings = m.flag("tie_word_embeddings", true);
  model.dropout = m.number("resid_pdrop", 0.1);
  for (const char* name : {"embd_pdrop", "attn_pdrop"}) {
    if (m.number(name, 0.1) == model.dropout) continue;
    throw m.refused(fmt::format("{} differs from resid_pdrop", name),
                    "fourfold has one probability of dropout: make resid_pdrop, embd_pdrop and "
                    "attn_pdrop equal");
  }
  const std::string activation = m.text("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh") {
    throw m.not_built("activation_function");
  }
  m.require("scale_attn_weights", true, true);
  m.require("scale_attn_by_inverse_layer_idx", false, false);
  m.require("add_cross_attention", false, false);
  return model;
}

/// What a family with rotary positions has where its config.json says nothing.
struct Defaults {
  std::int64_t vocab, hidden;
  int layers, heads, kv_heads;  ///< kv_heads 0: heads.
  std::int64_t head_dim;        ///< 0: hidden / heads.
  std::int64_t ffn, seq_len;
  double norm_eps, theta;
};

constexpr Defaults kLlama{32000, 4096, 32, 32, 0, 0, 11008, 2048, 1e-6, 1e4};
constexpr Defaults kMixtral{32000, 4096, 32, 32, 8, 0, 14336, 131072, 1e-5, 1e6};
constexpr Defaults kQwen3{151936, 4096, 32, 32, 32, 128, 22016, 32768, 1e-6, 1e4};
constexpr Defaults kQwen3Moe{151936, 2048, 24, 32, 4, 0, 6144, 32768, 1e-6, 1e4};
constexpr Defaults kOlmoe{50304, 2048, 16, 16, 0, 0, 2048, 4096, 1e-5, 1e4};

/// What these families have in common.
ModelSpec rotary_model(const json& object, const Members& m, const Defaults& otherwise) {
  ModelSpec model = *family_defaults("llama");
  model.vocab = m.size("vocab_size", otherwise.vocab);
  model.seq_len = m.size("max_position_embeddings", otherwise.seq_len);
  model.hidden = m.size("hidden_size", otherwise.hidden);
  model.layers = m.small_size("num_hidden_layers", otherwise.layers);
  model.heads = m.small_size("num_attention_heads", otherwise.heads);
  model.kv_heads = m.small_size("num_key_value_heads",
                                otherwise.kv_heads > 0 ? otherwise.kv_heads : model.heads);
  const bool divides = model.hidden % model.heads == 0;
  if (!m.has("head_dim") && otherwise.head_dim == 0 && !divides) {
    throw m.refused(fmt::format("num_attention_heads {} does not divide hidden_size {}",
                                model.heads, model.hidden),
                    "");
  }
  model.head_dim =
      m.size("head_dim", otherwise.head_dim > 0 ? otherwise.head_dim : model.hidden / model.heads);
  model.ffn = m.size("intermediate_size", otherwise.ffn);
  model.norm_eps = m.number("rms_norm_eps", otherwise.norm_eps);
  model.init_std = m.number("initializer_range", 0.02);
  model.tie_embeddings = m.flag("tie_word_embeddings", false);
  model.rope_theta = rope_theta(object, m, otherwise.theta);
  model.bias = m.flag("attention_bias", false);
  if (m.flag("mlp_bias", false) != model.bias) {
    throw m.refused("attention_bias and mlp_bias differ, which is not built yet", kNotBuilt);
  }
  const std::string activation = m.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") throw m.not_built("hidden_act");
  if (m.number("attention_dropout", 0) != 0) {
    throw m.refused("attention_dropout is not 0",
                    "fourfold drops after the embedding and before residual sums too: set it to 0 "
                    "in config.json, and model.dropout as you like");
  }
  return model;
}

/// What families with experts have in common. Their number goes by one of two names, by family and
/// version of transformers.
void read_experts(const Members& m, MoeSpec otherwise, ModelSpec& model) {
  const char* number = m.has("num_experts") ? "num_experts" : "num_local_experts";
  MoeSpec& moe = model.moe;
  moe.experts = m.small_size(number, otherwise.experts);
  moe.top_k = m.small_size("num_experts_per_tok", otherwise.top_k);
  moe.aux_coef = m.number("router_aux_loss_coef", otherwise.aux_coef);
  if (moe.top_k <= moe.experts) return;
  throw m.refused(
      fmt::format("num_experts_per_tok {} is more than {} {}", moe.top_k, number, moe.experts), "");
}

ModelSpec mixtral_model(const json& object, const Members& m) {
  ModelSpec model = rotary_model(object, m, kMixtral);
  read_experts(m, {.experts = 8, .top_k = 2, .aux_coef = 0.001}, model);
  model.moe.ffn = model.ffn;
  model.moe.jitter = m.number("router_jitter_noise", 0);
  m.require_absent("sliding_window");
  return model;
}

ModelSpec qwen3_model(const json& object, const Members& m) {
  ModelSpec model = rotary_model(object, m, kQwen3);
  model.qk_norm = QkNorm::kHead;
  m.require("use_sliding_window", false, false);
  return model;
}

ModelSpec qwen3_moe_model(const json& object, const Members& m) {
  ModelSpec model = rotary_model(object, m, kQwen3Moe);
  model.qk_norm = QkNorm::kHead;
  m.require("use_sliding_window", false, false);
  read_experts(m, {.experts = 128, .top_k = 8, .aux_coef = 0.001}, model);
  model.moe.ffn = m.size("moe_intermediate_size", 768);
  model.moe.renormalise = m.flag("norm_topk_prob", false);
  model.moe.every = m.small_size("decoder_sparse_step", 1);
  // Only the first layers can be dense out of turn.
  if (!m.has("mlp_only_layers")) return model;
  const json& dense = object.at("mlp_only_layers");
  if (!dense.is_array()) throw m.refused("mlp_only_layers is no list", "");
  for (const json& layer : dense) {
    if (layer != model.moe.first_dense) throw m.not_built("mlp_only_layers");
    ++model.moe.first_dense;
  }
  return model;
}

ModelSpec olmoe_model(const json& object, const Members& m) {
  ModelSpec model = rotary_model(object, m, kOlmoe);
  model.qk_norm = QkNorm::kWhole;
  m.require_absent("clip_qkv");
  read_experts(m, {.experts = 64, .top_k = 8, .aux_coef = 0.01}, model);
  model.moe.ffn = model.ffn;
  model.moe.renormalise = m.flag("norm_topk_prob", false);
  return model;
}

}  // namespace

Result<ModelSpec> parse_hf_config(std::string_view text, const std::string& file) {
  const json object = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  const Members members(object, file);
  if (!object.is_object()) {
    return members.refused("not a JSON object", "a Hugging Face config.json is needed");
  }
  try {
    const std::string type = members.text("model_type", "");
    if (type.empty()) return members.refused("has no model_type", kNotBuilt);
    members.require_absent("quantization_config");
    if (type == "gpt2") return gpt2_model(members);
    if (type == "llama") return rotary_model(object, members, kLlama);
    if (type == "mixtral") return mixtral_model(object, members);
    if (type == "qwen3") return qwen3_model(object, members);
    if (type == "qwen3_moe") return qwen3_moe_model(object, members);
    if (type == "olmoe") return olmoe_model(object, members);
    return members.not_built("model_type");
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace fourfold
