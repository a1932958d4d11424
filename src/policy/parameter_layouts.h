#pragma once

#include <string>
#include <vector>

#include "layout/tensor_layout.h"
#include "policy/head_layout.h"
#include "spec/run_spec.h"

namespace fourfold {

/// A parameter of a model: its global name and how a grid cuts it.
struct ParameterLayout {
  std::string name;  ///< "model.layers.0.self_attn.q_proj.weight".
  TensorLayout layout;
};

/// All parameters of a model on a grid, in the order in which the model itself lists them, without
/// making any: for programs that work on checkpoints alone. Weights are [out, in].
std::vector<ParameterLayout> parameter_layouts(const ModelSpec& model, const GridShape& grid,
                                               HeadLayout head);

/// The head layout that a run chooses on its grid (choose_head_layout).
HeadLayout run_head_layout(const RunSpec& run);

/// What one rank contributes of a parameter to a checkpoint: the region that its optimizer updates,
/// which of the ranks that hold it this one is, and who they are (SaveItem).
struct HeldRegion {
  Region region;
  int replica = 0;
  int replicas = 1;
  int replica_set = -1;
};
HeldRegion held_region(const TensorLayout& layout, const Grid& grid, Coords at, bool zero);

}  // namespace fourfold
