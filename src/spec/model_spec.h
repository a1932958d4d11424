#pragma once

#include <cstdint>
#include <string>

#include "spec/moe_spec.h"

namespace fourfold {

enum class Norm { kLayerNorm, kRmsNorm };
enum class Activation { kGelu, kSwiGlu };  ///< GELU in its tanh form.
enum class Position { kLearned, kRotary };
/// RMSNorm of queries and keys before their positions: of each head (Qwen3), or of all heads of a
/// token together (OLMoE).
enum class QkNorm { kNone, kHead, kWhole };

/// What a transformer is: the GPT-2 and Llama families are two settings of one model. Sizes are
/// global; no grid rounds them.
struct ModelSpec {
  std::string preset;  ///< Where the values came from; empty if written out.
  std::string family = "gpt";
  int layers = 0;
  std::int64_t hidden = 0;
  int heads = 0;
  int kv_heads = 0;           ///< Key/value heads, dividing heads.
  std::int64_t head_dim = 0;  ///< hidden / heads unless given.
  std::int64_t ffn = 0;       ///< Width of the MLP.
  std::int64_t seq_len = 0;   ///< Longest sequence (rows of learned positions).
  std::int64_t vocab = 0;
  double dropout = 0;  ///< After the embedding, in attention and before each residual sum.
  bool tie_embeddings = true;
  bool bias = true;  ///< Biases of linears and of LayerNorm.
  Norm norm = Norm::kLayerNorm;
  double norm_eps = 1e-5;
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kGelu;
  Position position = Position::kLearned;
  double rope_theta = 10000;
  double init_std = 0.02;  ///< Residual projections: divided by sqrt(2·layers).
  MoeSpec moe;

  std::int64_t query_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  bool gated() const { return activation == Activation::kSwiGlu; }
  bool operator==(const ModelSpec&) const = default;
};

}  // namespace fourfold
