#include "ckpt/hf_config.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "spec/presets.h"

namespace fourfold {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kNotBuilt =
    "GPT-2, Llama and Mixtral, as in docs/cookbook.md, can be imported";

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

constexpr double kLlamaTheta = 10000, kMixtralTheta = 1e6;

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

/// What the families with rotary positions have in common.
ModelSpec rotary_model(const json& object, const Members& m, double theta) {
  ModelSpec model = *family_defaults("llama");
  model.vocab = m.size("vocab_size", 32000);
  model.hidden = m.size("hidden_size", 4096);
  model.layers = m.small_size("num_hidden_layers", 32);
  model.heads = m.small_size("num_attention_heads", 32);
  model.head_dim = m.size("head_dim", model.hidden / model.heads);
  if (!m.has("head_dim") && model.hidden % model.heads != 0) {
    throw m.refused(fmt::format("num_attention_heads {} does not divide hidden_size {}",
                                model.heads, model.hidden),
                    "");
  }
  model.init_std = m.number("initializer_range", 0.02);
  model.tie_embeddings = m.flag("tie_word_embeddings", false);
  model.rope_theta = rope_theta(object, m, theta);
  const std::string activation = m.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") throw m.not_built("hidden_act");
  if (m.number("attention_dropout", 0) != 0) {
    throw m.refused("attention_dropout is not 0",
                    "fourfold drops after the embedding and before residual sums too: set it to 0 "
                    "in config.json, and model.dropout as you like");
  }
  return model;
}

ModelSpec llama_model(const json& object, const Members& m) {
  ModelSpec model = rotary_model(object, m, kLlamaTheta);
  model.seq_len = m.size("max_position_embeddings", 2048);
  model.kv_heads = m.small_size("num_key_value_heads", model.heads);
  model.ffn = m.size("intermediate_size", 11008);
  model.norm_eps = m.number("rms_norm_eps", 1e-6);
  model.bias = m.flag("attention_bias", false);
  if (m.flag("mlp_bias", false) != model.bias) {
    throw m.refused("attention_bias and mlp_bias differ, which is not built yet", kNotBuilt);
  }
  return model;
}

ModelSpec mixtral_model(const json& object, const Members& m) {
  ModelSpec model = rotary_model(object, m, kMixtralTheta);
  model.seq_len = m.size("max_position_embeddings", 131072);
  model.kv_heads = m.small_size("num_key_value_heads", 8);
  model.ffn = model.moe.ffn = m.size("intermediate_size", 14336);
  model.norm_eps = m.number("rms_norm_eps", 1e-5);
  model.moe.experts = m.small_size("num_local_experts", 8);
  model.moe.top_k = m.small_size("num_experts_per_tok", 2);
  model.moe.aux_coef = m.number("router_aux_loss_coef", 0.001);
  model.moe.jitter = m.number("router_jitter_noise", 0);
  m.require_absent("sliding_window");
  if (model.moe.top_k > model.moe.experts) {
    throw m.refused(fmt::format("num_experts_per_tok {} is more than num_local_experts {}",
                                model.moe.top_k, model.moe.experts),
                    "");
  }
  return model;
}

ordered_json id_or_null(std::optional<std::int32_t> id) {
  return id ? ordered_json(*id) : ordered_json(nullptr);
}

/// A model with experts, of which Mixtral has all there is here but these.
Result<HfFamily> moe_family_of(const ModelSpec& m) {
  const MoeSpec& moe = m.moe;
  const auto refused = [](const std::string& cause) {
    return Error(ErrorKind::kData,
                 fmt::format("a model with experts is exported as Mixtral, which has no {}", cause),
                 "models of family llama with experts in every block, renormalised softmax scores "
                 "and no shared experts can be exported");
  };
  if (m.position == Position::kLearned) return refused("learned positions (model.position)");
  if (m.norm != Norm::kRmsNorm) return refused("LayerNorm (model.norm)");
  if (!m.gated()) return refused("GELU (model.activation)");
  if (m.bias) return refused("biases (model.bias)");
  if (moe.every != 1) return refused("dense blocks (model.moe.every)");
  if (moe.first_dense > 0) return refused("dense blocks (model.moe.first_dense)");
  if (moe.shared_experts > 0) return refused("shared experts (model.moe.shared_experts)");
  if (moe.score != RouterScore::kSoftmax) return refused("sigmoid scores (model.moe.score)");
  if (!moe.renormalise) return refused("weights as they are (model.moe.renormalise)");
  if (moe.balance == Balance::kLossFree) return refused("bias of experts (model.moe.balance)");
  return HfFamily::kMixtral;
}

constexpr const char* kWrittenFor = "4.40.0";  ///< The oldest transformers that reads all of it.

/// What every family's config.json holds.
ordered_json common_members(const ModelSpec& model, const char* architecture, const char* type,
                            DType dtype, std::optional<std::int32_t> end_of_text) {
  const char* name = dtype == DType::kBF16 ? "bfloat16" : "float32";
  return {{"architectures", ordered_json::array({architecture})},
          {"model_type", type},
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

}  // namespace

const char* hf_family_name(HfFamily family) {
  if (family == HfFamily::kGpt2) return "GPT-2";
  return family == HfFamily::kLlama ? "Llama" : "Mixtral";
}

Result<HfFamily> hf_family_of(const ModelSpec& m) {
  if (m.moe.experts > 0) return moe_family_of(m);
  const bool gpt = m.position == Position::kLearned;
  const char* name = gpt ? "GPT-2" : "Llama";
  const auto refused = [&](const std::string& cause) {
    return Error(ErrorKind::kData,
                 fmt::format("a model with {} positions is exported as {}, which has no {}",
                             gpt ? "learned" : "rotary", name, cause),
                 "models of family gpt or llama with the family's norm and activation can be "
                 "exported");
  };
  const auto wanted_norm = gpt ? Norm::kLayerNorm : Norm::kRmsNorm;
  if (m.norm != wanted_norm)
    return refused(gpt ? "RMSNorm (model.norm)" : "LayerNorm (model.norm)");
  if (m.gated() == gpt)
    return refused(gpt ? "SwiGLU (model.activation)" : "GELU (model.activation)");
  if (!gpt) return HfFamily::kLlama;
  if (!m.bias) return refused("form without biases (model.bias)");
  if (m.kv_heads != m.heads) return refused("shared key/value heads (model.kv_heads)");
  if (m.query_width() != m.hidden) return refused("head width of its own (model.head_dim)");
  return HfFamily::kGpt2;
}

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
    if (type == "llama") return llama_model(object, members);
    if (type == "mixtral") return mixtral_model(object, members);
    return members.not_built("model_type");
  } catch (const Error& error) {
    return error;
  }
}

std::string hf_config_text(const ModelSpec& m, HfFamily family, DType dtype,
                           std::optional<std::int32_t> end_of_text) {
  if (family == HfFamily::kGpt2) {
    auto config = common_members(m, "GPT2LMHeadModel", "gpt2", dtype, end_of_text);
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
  const bool mixtral = family == HfFamily::kMixtral;
  auto config = common_members(m, mixtral ? "MixtralForCausalLM" : "LlamaForCausalLM",
                               mixtral ? "mixtral" : "llama", dtype, end_of_text);
  config.update({{"max_position_embeddings", m.seq_len},
                 {"hidden_size", m.hidden},
                 {"num_hidden_layers", m.layers},
                 {"num_attention_heads", m.heads},
                 {"num_key_value_heads", m.kv_heads},
                 {"head_dim", m.head_dim},
                 {"intermediate_size", mixtral ? m.moe.ffn : m.ffn},
                 {"hidden_act", "silu"},
                 {"rms_norm_eps", m.norm_eps},
                 {"attention_dropout", 0.0},
                 // Transformers 4 reads the first two, 5 the third.
                 {"rope_theta", m.rope_theta},
                 {"rope_scaling", nullptr},
                 {"rope_parameters", {{"rope_theta", m.rope_theta}, {"rope_type", "default"}}}});
  if (mixtral) {
    config.update({{"num_local_experts", m.moe.experts},
                   {"num_experts_per_tok", m.moe.top_k},
                   {"router_aux_loss_coef", m.moe.aux_coef},
                   {"router_jitter_noise", m.moe.jitter},
                   {"output_router_logits", false},
                   {"sliding_window", nullptr}});
  } else {
    config.update({{"attention_bias", m.bias}, {"mlp_bias", m.bias}});
  }
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
