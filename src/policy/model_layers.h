#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layout/expert_map.h"
#include "layout/layer_specs.h"
#include "policy/head_layout.h"
#include "spec/run_spec.h"

namespace fourfold {

/// Which ranks hold a layer's experts.
struct ExpertRanks {
  int ranks = 1;  ///< Of an ExpertGrid.
  ExpertPlacement placement = ExpertPlacement::kContiguous;
};

/// One expert: an MLP.
struct ExpertLayers {
  LinearSpec up, down;  ///< As in BlockLayers.
};

/// What stands in place of an MLP.
struct MoeLayers {
  RouterSpec router;
  ExpertMap map;
  std::string name;                   ///< Before the experts' numbers.
  std::vector<ExpertLayers> experts;  ///< All of the layer.
  std::optional<RouterSpec> shared_gate;

  /// Of the matrices of a rank's experts together, for plans.
  std::string up_name() const { return name + ".up"; }
  std::string down_name() const { return name + ".down"; }
};

/// A transformer block's layers, in the order of the forward pass.
struct BlockLayers {
  NormSpec attention_norm;
  LinearSpec qkv;  ///< q | k | v, normal.
  std::optional<QkNormSpec> qk_norm;
  LinearSpec projection;  ///< Transposed.
  NormSpec mlp_norm;
  std::optional<MoeLayers> moe;
  /// The MLP; beside experts the shared ones together, without members where there are none.
  LinearSpec up;    ///< Up, or gate | up; normal.
  LinearSpec down;  ///< Transposed.

  bool has_mlp() const { return !up.members.empty(); }
};

/// The layers of a model on a grid, in the order of the forward pass. Pure: the model is built from
/// it, and counts and plans read it.
struct ModelLayers {
  EmbeddingSpec embedding;
  std::vector<BlockLayers> blocks;
  NormSpec final_norm;
  bool rows_over_x = false;  ///< The residual stream is cut over x by rows.
  HeadLayout head_layout = HeadLayout::kReduceLogits;
  std::optional<ParameterSpec> head;  ///< None where it is tied to the embedding.
};

/// `grid` must be one that check_grid() allows.
ModelLayers model_layers(const ModelSpec& spec, const GridShape& grid, HeadLayout head_layout,
                         ExpertRanks experts = {}, bool sequence_parallel = false);
/// Those of a run on its grid.
ModelLayers model_layers_of(const RunSpec& run);

/// Every parameter of the model, in the order of the forward pass.
std::vector<ParameterSpec> parameters_of(const ModelLayers& layers);

}  // namespace fourfold
