#include "spec/model_identity.h"

#include <fmt/core.h>

#include "base/crc32c.h"
#include "base/units.h"
#include "spec/counts.h"

namespace fourfold {
namespace {

// Nothing for a model without what is younger than its hash.
std::string qk_norm_text(QkNorm norm) {
  return norm == QkNorm::kNone ? "" : fmt::format(" qk_norm {}", static_cast<int>(norm));
}

// The same for a dense model. How routing is balanced may change
// from one start of a run to the next.
std::string moe_text(const MoeSpec& m) {
  if (m.experts == 0) return "";
  return fmt::format(" moe {} {} {} {} {} {} {} {} {}", m.experts, m.top_k, m.ffn, m.every,
                     m.first_dense, m.shared_experts, m.shared_gate, static_cast<int>(m.score),
                     m.renormalise);
}

}  // namespace

std::string model_hash(const ModelSpec& m) {
  const bool rotary = m.position == Position::kRotary;
  const std::string text =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", m.layers, m.hidden, m.heads,
                  m.kv_heads, m.head_dim, m.ffn, rotary ? 0 : m.seq_len, m.vocab, m.tie_embeddings,
                  m.bias, static_cast<int>(m.norm), m.norm_eps, static_cast<int>(m.activation),
                  static_cast<int>(m.position), rotary ? m.rope_theta : 0) +
      qk_norm_text(m.qk_norm) + moe_text(m.moe);
  return fmt::format("{:08x}", crc32c(text.data(), text.size()));
}

std::string model_name(const ModelSpec& m) {
  const ParameterCount count = count_parameters(m);
  const std::string name = fmt::format("{}, {} parameters", m.preset.empty() ? m.family : m.preset,
                                       format_count(count.total()));
  if (m.moe.experts == 0) return name;
  return fmt::format("{} ({} active)", name, format_count(count.active()));
}

}  // namespace fourfold
