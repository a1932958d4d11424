#include "policy/overlap_plan.h"

#include <algorithm>

namespace fourfold {
namespace {

std::string name_of(const LinearSpec& linear) { return weight_specs(linear).front().name; }

/// The matrices of a block's forward pass, in order; backward uses them from the last to the first.
std::vector<std::string> names_of(const BlockLayers& block) {
  std::vector<std::string> names{name_of(block.qkv), name_of(block.projection)};
  if (block.moe) {
    const MoeLayers& moe = *block.moe;
    names.insert(names.end(),
                 {router_weight_spec(moe.router).name, moe.up_name(), moe.down_name()});
  }
  if (block.has_mlp()) names.insert(names.end(), {name_of(block.up), name_of(block.down)});
  if (block.moe && block.moe->shared_gate) {
    names.push_back(router_weight_spec(*block.moe->shared_gate).name);
  }
  return names;
}

void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

OverlapPlan overlap_plan(const ModelLayers& layers, const std::vector<KeptActivations>& kept) {
  OverlapPlan plan;
  plan.forward.push_back(token_table_spec(layers.embedding).name);
  if (!layers.embedding.position_name.empty()) {
    plan.forward.push_back(position_table_spec(layers.embedding).name);
  }
  for (const BlockLayers& block : layers.blocks) append(plan.forward, names_of(block));
  plan.forward.push_back(layers.head ? layers.head->name : plan.forward.front());

  // The head's weight serves forward and backward at once; the embedding's backward needs none.
  plan.step = plan.forward;
  for (std::size_t i = layers.blocks.size(); i-- > 0;) {
    const BlockLayers& block = layers.blocks[i];
    std::vector<std::string> names = names_of(block);
    const KeptActivations of_block = i < kept.size() ? kept[i] : KeptActivations();
    if (!of_block.qkv) plan.step.push_back(name_of(block.qkv));
    if (!of_block.middle) plan.step.push_back(name_of(block.projection));
    if (!of_block.up && block.moe) plan.step.push_back(block.moe->up_name());
    if (!of_block.up && block.has_mlp()) plan.step.push_back(name_of(block.up));
    std::reverse(names.begin(), names.end());
    append(plan.step, names);
  }
  return plan;
}

}  // namespace fourfold
