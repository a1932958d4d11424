#include "spec/counts.h"

namespace fourfold {
namespace {

std::int64_t attention_weights(const ModelSpec& m) {
  return 2 * m.hidden * (m.query_width() + m.kv_width());
}

std::int64_t attention_biases(const ModelSpec& m) {
  return m.bias ? m.query_width() + 2 * m.kv_width() + m.hidden : 0;
}

std::int64_t qk_norm_gains(const ModelSpec& m) {
  if (m.qk_norm == QkNorm::kNone) return 0;
  return m.qk_norm == QkNorm::kHead ? 2 * m.head_dim : m.query_width() + m.kv_width();
}

// Of an MLP of this width, an expert or not.
std::int64_t mlp_weights(const ModelSpec& m, std::int64_t width) {
  return (m.gated() ? 3 : 2) * m.hidden * width;
}

std::int64_t mlp_parameters(const ModelSpec& m, std::int64_t width) {
  return mlp_weights(m, width) + (m.bias ? (m.gated() ? 2 : 1) * width + m.hidden : 0);
}

int layers_with_experts(const ModelSpec& m) {
  int layers = 0;
  for (int i = 0; i < m.layers; ++i) layers += m.moe.in_layer(i);
  return layers;
}

std::int64_t shared_width(const MoeSpec& moe) { return moe.shared_experts * moe.ffn; }

// Of a layer with experts, beside them: the router [experts, hidden] without bias, and the gate of
// the shared experts [1, hidden].
std::int64_t routing_weights(const ModelSpec& m) {
  const bool gate = m.moe.shared_gate && m.moe.shared_experts > 0;
  return (m.moe.experts + gate) * m.hidden;
}

// Of all blocks: the weights of the products that one token takes part in.
std::int64_t product_weights(const ModelSpec& m) {
  const std::int64_t moe_layers = layers_with_experts(m);
  const std::int64_t routed = m.moe.top_k * mlp_weights(m, m.moe.ffn) + routing_weights(m) +
                              mlp_weights(m, shared_width(m.moe));
  return m.layers * attention_weights(m) + (m.layers - moe_layers) * mlp_weights(m, m.ffn) +
         moe_layers * routed;
}

std::int64_t norm_parameters(const ModelSpec& m) {
  return m.norm == Norm::kLayerNorm && m.bias ? 2 * m.hidden : m.hidden;
}

}  // namespace

ParameterCount count_parameters(const ModelSpec& m) {
  ParameterCount count;
  count.embedding = m.vocab * m.hidden;
  count.positions = m.position == Position::kLearned ? m.seq_len * m.hidden : 0;
  const std::int64_t moe_layers = layers_with_experts(m);
  const std::int64_t expert = mlp_parameters(m, m.moe.ffn);
  const std::int64_t shared = m.moe.shared_experts > 0 ? mlp_parameters(m, shared_width(m.moe)) : 0;
  count.experts = moe_layers * m.moe.experts * expert;
  count.idle_experts = moe_layers * (m.moe.experts - m.moe.top_k) * expert;
  count.layers = m.layers * (attention_weights(m) + attention_biases(m) + qk_norm_gains(m) +
                             2 * norm_parameters(m)) +
                 (m.layers - moe_layers) * mlp_parameters(m, m.ffn) +
                 moe_layers * (routing_weights(m) + shared) + count.experts;
  count.final_norm = norm_parameters(m);
  count.head = m.tie_embeddings ? 0 : m.vocab * m.hidden;
  return count;
}

double twelve_lh2(const ModelSpec& m) {
  const auto hidden = static_cast<double>(m.hidden);
  return 12.0 * m.layers * hidden * hidden;
}

double model_flops_per_token(const ModelSpec& m, std::int64_t seq_len) {
  const double weights = static_cast<double>(product_weights(m)) +
                         static_cast<double>(m.vocab) * static_cast<double>(m.hidden);
  // Forward: 2 operations a weight. QKᵀ and PV: 2·S·width each, halved by the causal mask.
  const double attention =
      2.0 * static_cast<double>(seq_len) * static_cast<double>(m.query_width()) * m.layers;
  return 3.0 * (2.0 * weights + attention);  // The backward pass costs twice the forward.
}

double paper_flops_per_step(const ModelSpec& m, std::int64_t batch, std::int64_t seq_len) {
  const auto hidden = static_cast<double>(m.hidden);
  const auto seq = static_cast<double>(seq_len);
  const double layers = m.layers;
  return 96.0 * static_cast<double>(batch) * seq * layers * hidden * hidden *
         (1.0 + seq / (6.0 * hidden) + static_cast<double>(m.vocab) / (16.0 * layers * hidden));
}

}  // namespace fourfold
