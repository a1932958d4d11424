#include "policy/recompute.h"

#include "base/check.h"

namespace fourfold {

KeptActivations kept_activations(Recompute recompute, bool keep_collectives, const GridShape& shape,
                                 int expert_ranks) {
  KeptActivations kept;
  if (recompute == Recompute::kNone) return kept;
  const bool over_x = keep_collectives && shape.x > 1, over_y = keep_collectives && shape.y > 1;
  if (recompute == Recompute::kAttention || recompute == Recompute::kFull) {
    kept.attention = false;
    kept.qkv = over_y;
  }
  if (recompute == Recompute::kMlp || recompute == Recompute::kFull) {
    kept.mlp = false;
    kept.up = over_y;
    kept.exchange = keep_collectives && expert_ranks > 1;
  }
  if (recompute == Recompute::kFull) kept.middle = over_x;
  return kept;
}

std::vector<KeptActivations> kept_by_block(const RunSpec& run) {
  std::vector<Recompute> blocks(static_cast<std::size_t>(run.model.layers), run.memory.recompute);
  if (run.memory.recompute == Recompute::kBudget) {
    FF_CHECK(run.memory.by_block.size() == blocks.size(), "the budget is not resolved");
    blocks = run.memory.by_block;
  }
  std::vector<KeptActivations> kept;
  for (const Recompute recompute : blocks) {
    kept.push_back(kept_activations(recompute, run.overlap.keep_collectives, run.parallel.grid,
                                    run.parallel.expert));
  }
  return kept;
}

}  // namespace fourfold
