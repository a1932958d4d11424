#include "spec/counts.h"

namespace fourfold {
namespace {

// Weights of one block's linears.
std::int64_t block_weights(const ModelSpec& m) {
  const std::int64_t attention = 2 * m.hidden * (m.query_width() + m.kv_width());
  const std::int64_t mlp = (m.gated() ? 3 : 2) * m.hidden * m.ffn;
  return attention + mlp;
}

std::int64_t block_biases(const ModelSpec& m) {
  if (!m.bias) return 0;
  const std::int64_t attention = m.query_width() + 2 * m.kv_width() + m.hidden;
  const std::int64_t mlp = (m.gated() ? 2 : 1) * m.ffn + m.hidden;
  return attention + mlp;
}

std::int64_t norm_parameters(const ModelSpec& m) {
  return m.norm == Norm::kLayerNorm && m.bias ? 2 * m.hidden : m.hidden;
}

}  // namespace

ParameterCount count_parameters(const ModelSpec& m) {
  ParameterCount count;
  count.embedding = m.vocab * m.hidden;
  count.positions = m.position == Position::kLearned ? m.seq_len * m.hidden : 0;
  count.layers = m.layers * (block_weights(m) + block_biases(m) + 2 * norm_parameters(m));
  count.final_norm = norm_parameters(m);
  count.head = m.tie_embeddings ? 0 : m.vocab * m.hidden;
  return count;
}

double twelve_lh2(const ModelSpec& m) {
  const auto hidden = static_cast<double>(m.hidden);
  return 12.0 * m.layers * hidden * hidden;
}

double model_flops_per_token(const ModelSpec& m, std::int64_t seq_len) {
  const double weights = static_cast<double>(m.layers) * static_cast<double>(block_weights(m)) +
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
