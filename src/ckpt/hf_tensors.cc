#include "ckpt/hf_tensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "policy/model_layers.h"

namespace fourfold {
namespace {

/// Where GPT-2 keeps what stands in a layer under our name; q is where q, k, v are.
struct Gpt2Name {
  const char* ours;
  const char* theirs;
  bool conv = false;
};

constexpr Gpt2Name kGpt2Layer[] = {
    {"input_layernorm", "ln_1"},
    {"self_attn.q_proj", "attn.c_attn", true},
    {"self_attn.o_proj", "attn.c_proj", true},
    {"post_attention_layernorm", "ln_2"},
    {"mlp.up_proj", "mlp.c_fc", true},
    {"mlp.down_proj", "mlp.c_proj", true},
};

class Gpt2Tensors {
 public:
  explicit Gpt2Tensors(const ModelSpec& model) {
    for (auto& p : parameters_of(model_layers(model, GridShape(), HeadLayout::kReduceLogits))) {
      shapes_[p.name] = p.layout.shape;
    }
    add("transformer.wte.weight", {"model.embed_tokens.weight"});
    add("transformer.wpe.weight", {"model.embed_positions.weight"});
    for (int i = 0; i < model.layers; ++i) {
      for (const Gpt2Name& name : kGpt2Layer) add_both(i, name);
    }
    add("transformer.ln_f.weight", {"model.norm.weight"});
    add("transformer.ln_f.bias", {"model.norm.bias"});
    if (!model.tie_embeddings) add("lm_head.weight", {"lm_head.weight"});
  }

  std::vector<HfTensor> take() { return std::move(tensors_); }

 private:
  /// Weight and bias.
  void add_both(int layer, const Gpt2Name& name) {
    for (const char* suffix : {".weight", ".bias"}) {
      const std::string ours = fmt::format("model.layers.{}.{}{}", layer, name.ours, suffix);
      std::vector<std::string> parts{ours};
      if (ours.find(".q_proj.") != std::string::npos) {
        for (const char letter : {'k', 'v'}) {
          parts.push_back(ours);
          parts.back()[ours.find(".q_proj.") + 1] = letter;
        }
      }
      add(fmt::format("transformer.h.{}.{}{}", layer, name.theirs, suffix), parts, name.conv);
    }
  }

  void add(const std::string& name, const std::vector<std::string>& parts, bool conv = false) {
    HfTensor t;
    t.name = name;
    t.parts = parts;
    t.part_shape = shapes_.at(parts.front());
    t.shape = t.part_shape;
    t.transposed = conv && t.shape.size() == 2;
    t.shape[0] *= static_cast<std::int64_t>(parts.size());
    if (t.transposed) std::swap(t.shape[0], t.shape[1]);
    tensors_.push_back(std::move(t));
  }

  std::unordered_map<std::string, std::vector<std::int64_t>> shapes_;
  std::vector<HfTensor> tensors_;
};

std::string mixtral_name(std::string name) {
  const std::pair<std::string_view, std::string_view> names[] = {{".mlp.", ".block_sparse_moe."},
                                                                 {".gate_proj.", ".w1."},
                                                                 {".down_proj.", ".w2."},
                                                                 {".up_proj.", ".w3."}};
  for (const auto& [ours, theirs] : names) {
    const auto at = name.find(ours);
    if (at != std::string::npos) name.replace(at, ours.size(), theirs);
  }
  return name;
}

/// One part of a tensor in both forms: ours [out, in], row-major, and where its elements lie in the
/// whole.
struct Place {
  std::int64_t out = 0, in = 0;
  std::int64_t row_stride = 0, col_stride = 0, first = 0;  ///< In the whole, in elements.
};

Place place_of(const HfTensor& t, std::size_t part) {
  Place p;
  const auto index = static_cast<std::int64_t>(part);
  p.out = t.part_shape[0];
  p.in = t.part_shape.size() == 2 ? t.part_shape[1] : 1;
  if (t.transposed) {
    p.row_stride = 1;
    p.col_stride = t.shape[1];
    p.first = index * p.out;
  } else {
    p.row_stride = p.in;
    p.col_stride = 1;
    p.first = index * p.out * p.in;
  }
  return p;
}

/// Calls copy(index in ours, index in the whole) for all elements, in tiles that both sides read or
/// write in whole cache lines.
template <class Copy>
void each_element(const Place& p, Copy copy) {
  constexpr std::int64_t kTile = 32;
  for (std::int64_t row = 0; row < p.out; row += kTile) {
    const std::int64_t row_end = std::min(row + kTile, p.out);
    for (std::int64_t col = 0; col < p.in; col += kTile) {
      const std::int64_t col_end = std::min(col + kTile, p.in);
      for (std::int64_t r = row; r < row_end; ++r) {
        for (std::int64_t c = col; c < col_end; ++c) {
          copy(static_cast<std::size_t>(r * p.in + c),
               static_cast<std::size_t>(p.first + r * p.row_stride + c * p.col_stride));
        }
      }
    }
  }
}

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  return Region::whole(shape).elements();
}

void check_sizes(const HfTensor& t, std::size_t part, std::size_t whole, std::size_t ours) {
  FF_CHECK(part < t.parts.size() && static_cast<std::int64_t>(whole) == elements_of(t.shape) &&
               static_cast<std::int64_t>(ours) == elements_of(t.part_shape),
           "{}: part {}, {} and {} elements", t.name, part, whole, ours);
}

}  // namespace

std::vector<HfTensor> hf_tensors(const ModelSpec& model, HfFamily family) {
  if (family == HfFamily::kGpt2) return Gpt2Tensors(model).take();
  // Our names are Llama's, and the other families' but for Mixtral's experts.
  std::vector<HfTensor> tensors;
  for (const auto& p : parameters_of(model_layers(model, GridShape(), HeadLayout::kReduceLogits))) {
    const bool renamed = family == HfFamily::kMixtral;
    tensors.push_back(
        {renamed ? mixtral_name(p.name) : p.name, p.layout.shape, {p.name}, p.layout.shape});
  }
  return tensors;
}

std::span<float> floats_of(std::vector<std::byte>& bytes) {
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

void put_hf_part(const HfTensor& tensor, std::size_t part, std::span<const float> ours,
                 std::span<float> whole) {
  check_sizes(tensor, part, whole.size(), ours.size());
  each_element(place_of(tensor, part),
               [&](std::size_t mine, std::size_t theirs) { whole[theirs] = ours[mine]; });
}

void take_hf_part(const HfTensor& tensor, std::size_t part, std::span<const float> whole,
                  std::span<float> ours) {
  check_sizes(tensor, part, whole.size(), ours.size());
  each_element(place_of(tensor, part),
               [&](std::size_t mine, std::size_t theirs) { ours[mine] = whole[theirs]; });
}

std::string bare_hf_name(const std::string& name, HfFamily family) {
  const std::string prefix = family == HfFamily::kGpt2 ? "transformer." : "model.";
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

bool is_ignored_hf_tensor(const std::string& bare_name, const ModelSpec& model, HfFamily family) {
  if (bare_name == "lm_head.weight") return model.tie_embeddings;
  if (family != HfFamily::kGpt2) return bare_name.ends_with("rotary_emb.inv_freq");
  return bare_name.ends_with(".attn.bias") || bare_name.ends_with(".attn.masked_bias");
}

}  // namespace fourfold
