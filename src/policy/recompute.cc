#include "policy/recompute.h"

#include "base/check.h"

namespace fourfold {

KeptActivations kept_activations(Recompute recompute, const OverlapSpec& overlap,
                                 const GridShape& shape, int expert_ranks) {
  KeptActivations kept;
  if (recompute == Recompute::kNone) return kept;
  const bool keeps = overlap.keep_collectives;
  const bool over_x = keeps && shape.x > 1, over_y = keeps && shape.y > 1;
  // Cut ones are made again without a collective; backward gathers them in any case.
  const bool whole_inputs = over_x && overlap.sequence_parallel && !overlap.sp_regather;
  if (recompute == Recompute::kAttention || recompute == Recompute::kFull) {
    kept.attention_input = whole_inputs;
    kept.attention = false;
    kept.qkv = over_y;
  }
  if (recompute == Recompute::kMlp || recompute == Recompute::kFull) {
    kept.mlp_input = whole_inputs;
    kept.mlp = false;
    kept.up = over_y;
    kept.exchange = keeps && expert_ranks > 1;
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
    kept.push_back(
        kept_activations(recompute, run.overlap, run.parallel.grid, run.parallel.expert));
  }
  return kept;
}

}  // namespace fourfold
