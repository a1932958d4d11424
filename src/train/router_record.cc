#include "train/router_record.h"

#include <algorithm>
#include <numeric>

namespace fourfold {

std::vector<RouterRecord> router_records(const MoeSpec& moe, const std::vector<RouterTally>& tally,
                                         std::int64_t step, std::int64_t step_tokens) {
  const auto tokens = static_cast<double>(step_tokens);
  std::vector<RouterRecord> records;
  for (std::size_t block = 0; block < tally.size(); ++block) {
    const RouterTally& t = tally[block];
    if (t.tokens.empty()) continue;
    RouterRecord& r = records.emplace_back();
    r.step = step;
    r.layer = static_cast<std::int64_t>(block);
    r.tokens.assign(t.tokens.begin(), t.tokens.end());
    const double all = std::accumulate(t.tokens.begin(), t.tokens.end(), 0.0);
    const double most = *std::max_element(t.tokens.begin(), t.tokens.end());
    r.max_over_mean = all > 0 ? most * static_cast<double>(t.tokens.size()) / all : 0;
    r.dropped = all > 0 ? t.dropped / all : 0;
    r.entropy = t.entropy / tokens;
    r.aux_loss = moe.aux_coef * moe.experts * t.balance / tokens;
    r.z_loss = moe.z_coef * t.z / tokens;
  }
  return records;
}

double worst_load(const std::vector<RouterRecord>& routers) {
  double worst = 0;
  for (const RouterRecord& r : routers) worst = std::max(worst, r.max_over_mean);
  return worst;
}

JsonLine to_json(const RouterRecord& r, bool forced) {
  JsonLine line;
  line.add("step", r.step)
      .add("router", r.layer)
      .add("tokens_per_expert", r.tokens)
      .add("max_over_mean", r.max_over_mean)
      .add("entropy", r.entropy)
      .add("dropped", r.dropped)
      .add("aux_loss", r.aux_loss)
      .add("z_loss", r.z_loss);
  if (forced) line.add("forced_balance", true);
  return line;
}

}  // namespace fourfold
