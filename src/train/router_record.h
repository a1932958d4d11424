#pragma once

#include <cstdint>
#include <vector>

#include "formats/json_lines.h"
#include "model/routing.h"
#include "spec/model_spec.h"

namespace fourfold {

/// What the router of one block did in one step, as metrics and report show it.
struct RouterRecord {
  std::int64_t step = 0;             ///< Steps done, from 1.
  std::int64_t layer = 0;            ///< The block, from 0.
  std::vector<std::int64_t> tokens;  ///< That chose each expert, those it turned away too.
  double max_over_mean = 0;          ///< Of tokens: 1 where all experts have as many.
  double entropy = 0;                ///< Of a token's choice, mean in nats; at most log(experts).
  double dropped = 0;                ///< Share of the choices that found an expert full.
  double aux_loss = 0;               ///< What the layer's balance added to the loss.
  double z_loss = 0;                 ///< What its z-loss added.
};

/// Of each block with experts, from the counts of a step on `step_tokens` tokens.
std::vector<RouterRecord> router_records(const MoeSpec& moe, const std::vector<RouterTally>& tally,
                                         std::int64_t step, std::int64_t step_tokens);

/// The largest max_over_mean of them; 0 where there is none.
double worst_load(const std::vector<RouterRecord>& routers);

/// A line of metrics.jsonl; with `forced` it says that balance was forced.
JsonLine to_json(const RouterRecord& record, bool forced);

}  // namespace fourfold
