#include "spec/model_identity.h"

#include <fmt/core.h>

#include "base/crc32c.h"
#include "base/units.h"
#include "spec/counts.h"

namespace fourfold {

std::string model_hash(const ModelSpec& m) {
  const bool rotary = m.position == Position::kRotary;
  const std::string text =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", m.layers, m.hidden, m.heads,
                  m.kv_heads, m.head_dim, m.ffn, rotary ? 0 : m.seq_len, m.vocab, m.tie_embeddings,
                  m.bias, static_cast<int>(m.norm), m.norm_eps, static_cast<int>(m.activation),
                  static_cast<int>(m.position), rotary ? m.rope_theta : 0);
  return fmt::format("{:08x}", crc32c(text.data(), text.size()));
}

std::string model_name(const ModelSpec& m) {
  return fmt::format("{}, {} parameters", m.preset.empty() ? m.family : m.preset,
                     format_count(count_parameters(m).total()));
}

}  // namespace fourfold
