#include "spec/presets.h"

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

constexpr std::array<Shape, 27> kShapes{{
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
}};

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// What a preset has beyond the family's ways and its own sizes.
void apply_extras(ModelSpec& model) {
  if (starts_with(model.preset, "llama-3")) model.rope_theta = 500000;
  if (model.preset == "llama-3.2-1b" || model.preset == "llama-100m") model.tie_embeddings = true;
  if (starts_with(model.preset, "axonn-")) model.init_std = 0.006;
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
