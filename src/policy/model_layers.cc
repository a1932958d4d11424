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

QkNormSpec qk_norm_of(const ModelSpec& spec, int kv_parts, int block) {
  const bool whole = spec.qk_norm == QkNorm::kWhole;
  const auto gain = [&](const char* part, std::int64_t width, int parts) {
    return whole ? LinearMember{layer_name(block, part), width, parts}
                 : LinearMember{layer_name(block, part), spec.head_dim, 1};
  };
  return {gain("self_attn.q_norm", spec.query_width(), 0),
          gain("self_attn.k_norm", spec.kv_width(), kv_parts), whole,
          static_cast<float>(spec.norm_eps)};
}

/// A linear with the model's settings; residual projections start smaller (GPT-2's rule).
LinearSpec linear_of(const ModelSpec& spec, std::vector<LinearMember> members, std::int64_t in,
                     Orientation orientation) {
  const bool residual = orientation == Orientation::kTransposed;
  const double std = residual ? spec.init_std / std::sqrt(2.0 * spec.layers) : spec.init_std;
  return {std::move(members), in, orientation, spec.bias, static_cast<float>(std)};
}

/// An MLP of this width whose linears are named under `name`.
ExpertLayers mlp_layers(const ModelSpec& spec, const std::string& name, std::int64_t width) {
  std::vector<LinearMember> up;
  if (spec.gated()) up.push_back({name + ".gate_proj", width, 0});
  up.push_back({name + ".up_proj", width, 0});
  return {
      linear_of(spec, std::move(up), spec.hidden, Orientation::kNormal),
      linear_of(spec, {{name + ".down_proj", spec.hidden, 0}}, width, Orientation::kTransposed)};
}

MoeLayers moe_layers(const ModelSpec& spec, ExpertRanks ranks, int block) {
  const MoeSpec& moe = spec.moe;
  const auto std = static_cast<float>(spec.init_std);
  MoeLayers layers{{layer_name(block, "mlp.gate"), moe.experts, spec.hidden, std},
                   ExpertMap(moe.experts, ranks.ranks, ranks.placement),
                   layer_name(block, "mlp.experts"),
                   {},
                   {}};
  for (int e = 0; e < moe.experts; ++e) {
    ExpertLayers expert = mlp_layers(spec, fmt::format("{}.{}", layers.name, e), moe.ffn);
    for (LinearSpec* linear : {&expert.up, &expert.down}) {
      linear->expert = e;
      linear->expert_ranks = ranks.ranks;
      linear->expert_rank = layers.map.rank_of(e);
    }
    layers.experts.push_back(std::move(expert));
  }
  if (moe.shared_experts > 0 && moe.shared_gate) {
    layers.shared_gate = {layer_name(block, "mlp.shared_expert_gate"), 1, spec.hidden, std};
  }
  return layers;
}

/// The layers beside the residual stream; experts get their rows by the exchange of tokens.
void cut_rows_over_x(ModelLayers& layers) {
  layers.rows_over_x = true;
  layers.embedding.rows_over_x = true;
  for (BlockLayers& block : layers.blocks) {
    block.attention_norm.rows_over_x = block.mlp_norm.rows_over_x = true;
    block.qkv.rows_over_x = block.projection.rows_over_x = true;
    block.up.rows_over_x = block.down.rows_over_x = true;
    if (!block.moe) continue;
    block.moe->router.rows_over_x = true;
    if (block.moe->shared_gate) block.moe->shared_gate->rows_over_x = true;
  }
  layers.final_norm.rows_over_x = true;
}

BlockLayers block_layers(const ModelSpec& spec, const GridShape& grid, ExpertRanks experts,
                         int block) {
  const int kv_parts = spec.kv_heads < grid.x ? spec.kv_heads : 0;
  BlockLayers layers;
  layers.attention_norm = norm_of(spec, layer_name(block, "input_layernorm"));
  layers.qkv = linear_of(spec,
                         {{layer_name(block, "self_attn.q_proj"), spec.query_width(), 0},
                          {layer_name(block, "self_attn.k_proj"), spec.kv_width(), kv_parts},
                          {layer_name(block, "self_attn.v_proj"), spec.kv_width(), kv_parts}},
                         spec.hidden, Orientation::kNormal);
  if (spec.qk_norm != QkNorm::kNone) layers.qk_norm = qk_norm_of(spec, kv_parts, block);
  layers.projection = linear_of(spec, {{layer_name(block, "self_attn.o_proj"), spec.hidden, 0}},
                                spec.query_width(), Orientation::kTransposed);
  layers.mlp_norm = norm_of(spec, layer_name(block, "post_attention_layernorm"));
  const bool sparse = spec.moe.in_layer(block);
  if (sparse) layers.moe = moe_layers(spec, experts, block);
  const std::int64_t width = sparse ? spec.moe.shared_experts * spec.moe.ffn : spec.ffn;
  if (width == 0) return layers;
  ExpertLayers mlp =
      mlp_layers(spec, layer_name(block, sparse ? "mlp.shared_expert" : "mlp"), width);
  layers.up = std::move(mlp.up);
  layers.down = std::move(mlp.down);
  return layers;
}

TensorLayout head_weight_layout(const ModelSpec& spec, HeadLayout layout) {
  if (layout == HeadLayout::kGatherHidden) {
    return {{spec.vocab, spec.hidden}, {{{Axis::kX, Axis::kY}, 0}, {{}, 0}}};
  }
  return {{spec.vocab, spec.hidden}, {{{Axis::kX}, 0}, {{Axis::kY}, 0}}};
}

}  // namespace

ModelLayers model_layers_of(const RunSpec& run) {
  return model_layers(run.model, run.parallel.grid, head_layout_of(run),
                      {run.parallel.expert, run.parallel.expert_placement},
                      run.overlap.sequence_parallel);
}

ModelLayers model_layers(const ModelSpec& spec, const GridShape& grid, HeadLayout head_layout,
                         ExpertRanks experts, bool sequence_parallel) {
  const auto std = static_cast<float>(spec.init_std);
  ModelLayers layers;
  const bool learned = spec.position == Position::kLearned;
  layers.embedding = {"model.embed_tokens", learned ? "model.embed_positions" : "",
                      spec.vocab,           spec.hidden,
                      spec.seq_len,         std};
  for (int i = 0; i < spec.layers; ++i) {
    layers.blocks.push_back(block_layers(spec, grid, experts, i));
  }
  layers.final_norm = norm_of(spec, "model.norm");
  layers.head_layout = head_layout;
  if (!spec.tie_embeddings) {
    layers.head = ParameterSpec{"lm_head.weight",
                                head_weight_layout(spec, head_layout),
                                {Init::Kind::kNormal, std},
                                ParameterRole::kEmbedding};
  }
  if (sequence_parallel && grid.x > 1) cut_rows_over_x(layers);
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
  auto add_linear = [&](const LinearSpec& linear) {
    add(weight_specs(linear));
    add(bias_specs(linear));
  };
  for (const BlockLayers& block : layers.blocks) {
    add(norm_parameters(block.attention_norm));
    add_linear(block.qkv);
    if (block.qk_norm) add(qk_norm_parameters(*block.qk_norm));
    add_linear(block.projection);
    add(norm_parameters(block.mlp_norm));
    if (block.moe) {
      all.push_back(router_weight_spec(block.moe->router));
      for (const ExpertLayers& e : block.moe->experts) {
        add_linear(e.up);
        add_linear(e.down);
      }
    }
    add_linear(block.up);
    add_linear(block.down);
    if (block.moe && block.moe->shared_gate) {
      all.push_back(router_weight_spec(*block.moe->shared_gate));
    }
  }
  add(norm_parameters(layers.final_norm));
  if (layers.head) all.push_back(*layers.head);
  return all;
}

}  // namespace fourfold
