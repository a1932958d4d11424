#pragma once

#include <optional>
#include <vector>

#include "layout/layer_specs.h"
#include "policy/head_layout.h"
#include "spec/model_spec.h"

namespace fourfold {

/// A transformer block's layers, in the order of the forward pass.
struct BlockLayers {
  NormSpec attention_norm;
  LinearSpec qkv;         ///< q | k | v, normal.
  LinearSpec projection;  ///< Transposed.
  NormSpec mlp_norm;
  LinearSpec up;    ///< Up, or gate | up; normal.
  LinearSpec down;  ///< Transposed.
};

/// The layers of a model on a grid, in the order of the forward pass. Pure: the model is built from
/// it, and counts and plans read it.
struct ModelLayers {
  EmbeddingSpec embedding;
  std::vector<BlockLayers> blocks;
  NormSpec final_norm;
  HeadLayout head_layout = HeadLayout::kReduceLogits;
  std::optional<ParameterSpec> head;  ///< None where it is tied to the embedding.
};

/// `grid` must be one that check_grid() allows.
ModelLayers model_layers(const ModelSpec& spec, const GridShape& grid, HeadLayout head_layout);

/// Every parameter of the model, in the order of the forward pass.
std::vector<ParameterSpec> parameters_of(const ModelLayers& layers);

}  // namespace fourfold
