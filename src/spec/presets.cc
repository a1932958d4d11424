#include "spec/presets.h"

#include <algorithm>
#include <array>

namespace fourfold {
namespace {

struct Shape {
  std::string_view name;
  std::string_view family;
  int layers;
  int hidden;
  int heads;
  int kv_heads;  ///< 0: heads.
  int ffn;       ///< 0: the family's rule.
  int seq_len;
  int vocab;
};

constexpr int kGpt2Vocab = 50257;
constexpr int kAxonnVocab = 51200;
constexpr int kLlama3Vocab = 128256;
constexpr int kPaddedGpt2Vocab = 50304;

constexpr std::array<Shape, 35> kShapes{{
    {"gpt-tiny", "gpt", 2, 66, 6, 0, 250, 33, 251},
    {"gpt-6m", "gpt", 6, 256, 8, 0, 0, 256, 4096},
    {"gpt2-124m", "gpt", 12, 768, 12, 0, 0, 1024, kGpt2Vocab},
    {"gpt2-355m", "gpt", 24, 1024, 16, 0, 0, 1024, kGpt2Vocab},
    {"gpt2-774m", "gpt", 36, 1280, 20, 0, 0, 1024, kGpt2Vocab},
    {"gpt2-1.5b", "gpt", 48, 1600, 25, 0, 0, 1024, kGpt2Vocab},
    {"llama-tiny", "llama", 2, 72, 12, 6, 170, 33, 253},
    {"llama-6m", "llama", 6, 256, 8, 4, 0, 256, 4096},
    {"llama-100m", "llama", 12, 768, 12, 4, 2048, 1024, 32000},
    {"tinyllama-1.1b", "llama", 22, 2048, 32, 4, 5632, 2048, 32000},
    {"llama-3.2-1b", "llama", 16, 2048, 32, 8, 8192, 8192, kLlama3Vocab},
    {"llama-2-7b", "llama", 32, 4096, 32, 0, 11008, 4096, 32000},
    {"llama-2-13b", "llama", 40, 5120, 40, 0, 13824, 4096, 32000},
    {"llama-3-8b", "llama", 32, 4096, 32, 8, 14336, 8192, kLlama3Vocab},
    {"llama-3-70b", "llama", 80, 8192, 64, 8, 28672, 8192, kLlama3Vocab},
    {"axonn-5b", "gpt", 24, 4096, 32, 0, 0, 2048, kAxonnVocab},
    {"axonn-10b", "gpt", 32, 5120, 40, 0, 0, 2048, kAxonnVocab},
    {"axonn-20b", "gpt", 32, 7168, 56, 0, 0, 2048, kAxonnVocab},
    {"axonn-40b", "gpt", 38, 9216, 72, 0, 0, 2048, kAxonnVocab},
    {"axonn-50b", "gpt", 48, 9216, 72, 0, 0, 2048, kAxonnVocab},
    {"axonn-60b", "gpt", 56, 9216, 72, 0, 0, 2048, kAxonnVocab},
    {"axonn-80b", "gpt", 42, 12288, 96, 0, 0, 2048, kAxonnVocab},
    {"axonn-100b", "gpt", 53, 12288, 96, 0, 0, 2048, kAxonnVocab},
    {"axonn-160b", "gpt", 84, 12288, 96, 0, 0, 2048, kAxonnVocab},
    {"axonn-175b", "gpt", 96, 12288, 96, 0, 0, 2048, kAxonnVocab},
    {"axonn-320b", "gpt", 96, 16384, 128, 0, 0, 2048, kAxonnVocab},
    {"axonn-640b", "gpt", 192, 16384, 128, 0, 0, 2048, kAxonnVocab},
    {"gpt-moe-tiny", "gpt", 2, 66, 6, 0, 250, 33, 251},
    {"llama-moe-tiny", "llama", 2, 72, 12, 6, 170, 33, 253},
    {"moe-6m", "gpt", 6, 256, 8, 0, 0, 256, 4096},
    {"gpt-125m-8e", "gpt", 12, 768, 12, 0, 0, 1024, kPaddedGpt2Vocab},
    {"gpt-350m-16e", "gpt", 24, 1024, 16, 0, 0, 2048, kPaddedGpt2Vocab},
    {"mixtral-small", "llama", 12, 512, 8, 2, 1792, 2048, 32000},
    {"qwen3-moe-small", "llama", 12, 512, 8, 2, 1536, 2048, 32000},
    {"olmoe-1b-7b", "llama", 16, 2048, 16, 0, 1024, 4096, kPaddedGpt2Vocab},
}};

/// The experts of a shape; all of them softmax routers without capacity.
struct Experts {
  std::string_view name;
  int experts;
  int top_k;
  int ffn;  ///< 0: the shape's.
  int every;
  bool renormalise;
};

// The checkpoint papers don't say how many experts a token of theirs takes. One is the default of
// their framework's gate (DeepSpeed), which does not renormalise it: its weight would always be 1.
constexpr std::array<Experts, 8> kExperts{{
    {"gpt-moe-tiny", 5, 2, 0, 1, true},
    {"llama-moe-tiny", 6, 3, 58, 1, true},
    {"moe-6m", 8, 2, 512, 1, true},
    {"gpt-125m-8e", 8, 1, 0, 2, false},
    {"gpt-350m-16e", 16, 1, 0, 2, false},
    {"mixtral-small", 8, 2, 0, 1, true},
    {"qwen3-moe-small", 32, 4, 192, 1, true},
    {"olmoe-1b-7b", 64, 8, 0, 1, false},
}};

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

void apply_experts(ModelSpec& model) {
  const auto* row = std::find_if(kExperts.begin(), kExperts.end(),
                                 [&](const Experts& e) { return e.name == model.preset; });
  if (row == kExperts.end()) return;
  model.moe.experts = row->experts;
  model.moe.top_k = row->top_k;
  model.moe.ffn = row->ffn;
  model.moe.every = row->every;
  model.moe.renormalise = row->renormalise;
}

// What a preset has beyond the family's ways and its own sizes.
void apply_extras(ModelSpec& model) {
  if (starts_with(model.preset, "llama-3")) model.rope_theta = 500000;
  if (model.preset == "llama-3.2-1b" || model.preset == "llama-100m") model.tie_embeddings = true;
  if (starts_with(model.preset, "axonn-")) model.init_std = 0.006;
  if (model.preset == "mixtral-small" || model.preset == "qwen3-moe-small") model.rope_theta = 1e6;
  if (model.preset == "qwen3-moe-small") {
    model.norm_eps = 1e-6;
    model.qk_norm = QkNorm::kHead;
  }
  if (model.preset == "olmoe-1b-7b") {
    model.qk_norm = QkNorm::kWhole;
    model.moe.z_coef = 1e-3;
  }
  if (model.preset == "llama-moe-tiny") {
    model.moe.shared_experts = 1;
    model.moe.shared_gate = true;
  }
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

std::optional<ModelSpec> find_preset(std::string_view name) {
  for (const Shape& shape : kShapes) {
    if (shape.name != name) continue;
    ModelSpec model = *family_defaults(shape.family);
    model.preset = shape.name;
    model.layers = shape.layers;
    model.hidden = shape.hidden;
    model.heads = shape.heads;
    model.kv_heads = shape.kv_heads;
    model.ffn = shape.ffn;
    model.seq_len = shape.seq_len;
    model.vocab = shape.vocab;
    apply_experts(model);
    apply_extras(model);
    complete_model(model);
    return model;
  }
  return std::nullopt;
}

std::optional<ModelSpec> family_defaults(std::string_view family) {
  ModelSpec model;
  if (family == "gpt") return model;
  if (family != "llama") return std::nullopt;
  model.family = "llama";
  model.norm = Norm::kRmsNorm;
  model.activation = Activation::kSwiGlu;
  model.position = Position::kRotary;
  model.bias = false;
  model.tie_embeddings = false;
  return model;
}

void complete_model(ModelSpec& model) {
  constexpr std::int64_t kFfnMultiple = 64;
  if (model.kv_heads == 0) model.kv_heads = model.heads;
  if (model.head_dim == 0 && model.heads > 0) model.head_dim = model.hidden / model.heads;
  if (model.ffn == 0) {
    const std::int64_t gated = (8 * model.hidden / 3 + kFfnMultiple - 1) / kFfnMultiple;
    model.ffn = model.gated() ? gated * kFfnMultiple : 4 * model.hidden;
  }
  if (model.moe.experts > 0 && model.moe.ffn == 0) model.moe.ffn = model.ffn;
}

}  // namespace fourfold
