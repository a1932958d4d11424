#include "spec/config_builder.h"

namespace fourfold {
namespace {

// Largest sizes that are read: beyond any model, and small enough that counts fit in 63 bits.
constexpr double kMaxLayers = 1e4;
constexpr double kMaxHidden = 1e6;
constexpr double kMaxHeads = 1e4;
constexpr double kMaxFfn = 1e8;
constexpr double kMaxTokens = 1e8;

std::vector<ConfigKey> shape_keys() {
  return {
      key("model.preset", FF_FIELD(model.preset),
          {.doc = "a named shape (see the end of this page); the other keys of "
                  "[model] override it",
           .default_text = "none"}),
      key("model.family", FF_FIELD(model.family),
          {.doc = "gpt: LayerNorm, GELU, learned positions, biases, tied embeddings; llama: "
                  "RMSNorm, SwiGLU, rotary positions, no biases, untied",
           .choices = {"gpt", "llama"}}),
      key("model.layers", FF_FIELD(model.layers),
          {.doc = "transformer blocks", .min = 1, .max = kMaxLayers, .default_text = "required"}),
      key("model.hidden", FF_FIELD(model.hidden),
          {.doc = "width of the residual stream",
           .min = 1,
           .max = kMaxHidden,
           .default_text = "required"}),
      key("model.heads", FF_FIELD(model.heads),
          {.doc = "attention heads; a multiple of parallel.x",
           .min = 1,
           .max = kMaxHeads,
           .default_text = "required"}),
      key("model.kv_heads", FF_FIELD(model.kv_heads),
          {.doc = "key/value heads, dividing heads (grouped-query attention)",
           .min = 1,
           .max = kMaxHeads,
           .default_text = "heads"}),
      key("model.head_dim", FF_FIELD(model.head_dim),
          {.doc = "width of a head; even with rotary positions",
           .min = 1,
           .max = kMaxHeads,
           .default_text = "hidden / heads"}),
      key("model.ffn", FF_FIELD(model.ffn),
          {.doc = "width of the MLP",
           .min = 1,
           .max = kMaxFfn,
           .default_text = "4·hidden; with swiglu 8/3·hidden, rounded up to a multiple of 64"}),
      key("model.seq_len", FF_FIELD(model.seq_len),
          {.doc = "longest sequence",
           .unit = "tokens",
           .min = 1,
           .max = kMaxTokens,
           .default_text = "required"}),
      key("model.vocab", FF_FIELD(model.vocab),
          {.doc = "vocabulary; no grid rounds it",
           .unit = "tokens",
           .min = 2,
           .max = kMaxTokens,
           .default_text = "required"}),
  };
}

std::vector<ConfigKey> detail_keys() {
  return {
      key("model.dropout", FF_FIELD(model.dropout),
          {.doc = "probability, after the embedding, in attention and before each residual sum",
           .min = 0,
           .max = 0.999}),
      key("model.tie_embeddings", FF_FIELD(model.tie_embeddings),
          {.doc = "the head is the embedding", .default_text = "gpt true, llama false"}),
      key("model.bias", FF_FIELD(model.bias),
          {.doc = "biases of linears and of LayerNorm", .default_text = "gpt true, llama false"}),
      key("model.norm", FF_FIELD(model.norm),
          {.doc = "", .default_text = "gpt layernorm, llama rmsnorm"}),
      key("model.norm_eps", FF_FIELD(model.norm_eps),
          {.doc = "added to the variance", .min = 0, .max = 1}),
      key("model.qk_norm", FF_FIELD(model.qk_norm),
          {.doc = "RMSNorm of queries and keys: of each head (Qwen3), or of all heads together "
                  "(OLMoE)"}),
      key("model.activation", FF_FIELD(model.activation),
          {.doc = "of the MLP; GELU in its tanh form", .default_text = "gpt gelu, llama swiglu"}),
      key("model.position", FF_FIELD(model.position),
          {.doc = "", .default_text = "gpt learned, llama rotary"}),
      key("model.rope_theta", FF_FIELD(model.rope_theta),
          {.doc = "base of the rotary frequencies", .min = 1}),
      key("model.init_std", FF_FIELD(model.init_std),
          {.doc = "standard deviation of initial weights; of residual projections divided by "
                  "√(2·layers)",
           .min = 0,
           .max = 10}),
  };
}

}  // namespace

std::vector<ConfigKey> model_keys() {
  std::vector<ConfigKey> keys = shape_keys();
  for (auto part : {detail_keys(), moe_keys()}) {
    keys.insert(keys.end(), part.begin(), part.end());
  }
  return keys;
}

}  // namespace fourfold
