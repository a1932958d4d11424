#include "policy/model_layers.h"

#include <fmt/core.h>

#include <cmath>
#include <iterator>

namespace fourfold {
namespace {

std::string layer_name(int block, const char* part) {
  return fmt::format("model.layers.{}.{}", block, part);
}

NormSpec norm_of(const ModelSpec& spec, std::string name) {
  const bool centred = spec.norm == Norm::kLayerNorm;
  return {std::move(name), spec.hidden, centred, centred && spec.bias,
          static_cast<float>(spec.norm_eps)};
}

/// A linear with the model's settings; residual projections start smaller (GPT-2's rule).
LinearSpec linear_of(const ModelSpec& spec, std::vector<LinearMember> members, std::int64_t in,
                     Orientation orientation) {
  const bool residual = orientation == Orientation::kTransposed;
  const double std = residual ? spec.init_std / std::sqrt(2.0 * spec.layers) : spec.init_std;
  return {std::move(members), in, orientation, spec.bias, static_cast<float>(std)};
}

BlockLayers block_layers(const ModelSpec& spec, const GridShape& grid, int block) {
  const int kv_parts = spec.kv_heads < grid.x ? spec.kv_heads : 0;
  std::vector<LinearMember> up;
  if (spec.gated()) up.push_back({layer_name(block, "mlp.gate_proj"), spec.ffn, 0});
  up.push_back({layer_name(block, "mlp.up_proj"), spec.ffn, 0});
  BlockLayers layers;
  layers.attention_norm = norm_of(spec, layer_name(block, "input_layernorm"));
  layers.qkv = linear_of(spec,
                         {{layer_name(block, "self_attn.q_proj"), spec.query_width(), 0},
                          {layer_name(block, "self_attn.k_proj"), spec.kv_width(), kv_parts},
                          {layer_name(block, "self_attn.v_proj"), spec.kv_width(), kv_parts}},
                         spec.hidden, Orientation::kNormal);
  layers.projection = linear_of(spec, {{layer_name(block, "self_attn.o_proj"), spec.hidden, 0}},
                                spec.query_width(), Orientation::kTransposed);
  layers.mlp_norm = norm_of(spec, layer_name(block, "post_attention_layernorm"));
  layers.up = linear_of(spec, std::move(up), spec.hidden, Orientation::kNormal);
  layers.down = linear_of(spec, {{layer_name(block, "mlp.down_proj"), spec.hidden, 0}}, spec.ffn,
                          Orientation::kTransposed);
  return layers;
}

TensorLayout head_weight_layout(const ModelSpec& spec, HeadLayout layout) {
  if (layout == HeadLayout::kGatherHidden) {
    return {{spec.vocab, spec.hidden}, {{{Axis::kX, Axis::kY}, 0}, {{}, 0}}};
  }
  return {{spec.vocab, spec.hidden}, {{{Axis::kX}, 0}, {{Axis::kY}, 0}}};
}

}  // namespace

ModelLayers model_layers(const ModelSpec& spec, const GridShape& grid, HeadLayout head_layout) {
  const auto std = static_cast<float>(spec.init_std);
  ModelLayers layers;
  const bool learned = spec.position == Position::kLearned;
  layers.embedding = {"model.embed_tokens", learned ? "model.embed_positions" : "",
                      spec.vocab,           spec.hidden,
                      spec.seq_len,         std};
  for (int i = 0; i < spec.layers; ++i) layers.blocks.push_back(block_layers(spec, grid, i));
  layers.final_norm = norm_of(spec, "model.norm");
  layers.head_layout = head_layout;
  if (!spec.tie_embeddings) {
    layers.head = ParameterSpec{"lm_head.weight",
                                head_weight_layout(spec, head_layout),
                                {Init::Kind::kNormal, std},
                                ParameterRole::kEmbedding};
  }
  return layers;
}

std::vector<ParameterSpec> parameters_of(const ModelLayers& layers) {
  std::vector<ParameterSpec> all{token_table_spec(layers.embedding)};
  auto add = [&](std::vector<ParameterSpec> specs) {
    all.insert(all.end(), std::make_move_iterator(specs.begin()),
               std::make_move_iterator(specs.end()));
  };
  if (!layers.embedding.position_name.empty()) {
    all.push_back(position_table_spec(layers.embedding));
  }
  for (const BlockLayers& block : layers.blocks) {
    add(norm_parameters(block.attention_norm));
    for (const LinearSpec* linear : {&block.qkv, &block.projection}) {
      add(weight_specs(*linear));
      add(bias_specs(*linear));
    }
    add(norm_parameters(block.mlp_norm));
    for (const LinearSpec* linear : {&block.up, &block.down}) {
      add(weight_specs(*linear));
      add(bias_specs(*linear));
    }
  }
  add(norm_parameters(layers.final_norm));
  if (layers.head) all.push_back(*layers.head);
  return all;
}

}  // namespace fourfold
