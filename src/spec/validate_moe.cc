#include "spec/validate_moe.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "layout/expert_grid.h"
#include "spec/config_key.h"

namespace fourfold {
namespace {

using Found = std::optional<Problem>;

// Keys that would be ignored.
Found check_without_experts(const RunSpec& run) {
  const std::string hint = "give model.moe.experts, or leave the key out";
  const RunSpec none;
  for (const ConfigKey& key : config_keys()) {
    if (key.table() != "model.moe" || key.get(run) == key.get(none)) continue;
    return Problem{
        key.path,
        fmt::format("{} is {}, but the model has no experts", key.path, to_toml(key.get(run))),
        hint};
  }
  const std::pair<double, const char*> ranks[] = {
      {run.parallel.expert - 1, "parallel.expert"},
      {run.parallel.expert_chunks - 1, "parallel.expert_chunks"},
      {run.parallel.node_first_exchange ? 1 : 0, "parallel.node_first_exchange"},
      {run.parallel.local_expert_bias, "parallel.local_expert_bias"}};
  for (const auto& [beyond, name] : ranks) {
    if (beyond > 0) {
      const std::string value = to_toml(find_key(name)->get(run));
      return Problem{name, fmt::format("{} is {}, but the model has no experts", name, value),
                     hint};
    }
  }
  return std::nullopt;
}

Found check_layers(const ModelSpec& m) {
  const MoeSpec& moe = m.moe;
  if (moe.top_k > moe.experts) {
    return Problem{"model.moe.top_k",
                   fmt::format("a token cannot take {} of {} experts", moe.top_k, moe.experts),
                   "lower model.moe.top_k or raise model.moe.experts"};
  }
  if (moe.top_k == 1 && moe.renormalise) {
    return Problem{
        "model.moe.renormalise",
        "with top_k = 1 a renormalised weight is always 1: no gradient reaches the router",
        "set model.moe.renormalise = false"};
  }
  const int last = m.layers / moe.every * moe.every;  // Counted from 1; 0: none.
  if (last <= moe.first_dense) {
    return Problem{
        moe.every > m.layers ? "model.moe.every" : "model.moe.first_dense",
        fmt::format("none of {} blocks has experts: every = {} and first_dense = {} leave none",
                    m.layers, moe.every, moe.first_dense),
        "block i (from 0) has experts where i >= first_dense and (i + 1) mod every = 0; lower one "
        "of them, or set model.moe.experts = 0"};
  }
  // Beyond it counts would not fit in 63 bits.
  constexpr double kMaxParameters = 1e18;
  constexpr double kMatrices = 3;
  const double parameters = static_cast<double>(m.layers) *
                            (static_cast<double>(moe.experts) + moe.shared_experts) * kMatrices *
                            static_cast<double>(m.hidden) * static_cast<double>(moe.ffn);
  if (parameters > kMaxParameters) {
    return Problem{"model.moe.experts",
                   fmt::format("{} experts of width {} are {:.1e} parameters", moe.experts, moe.ffn,
                               parameters),
                   fmt::format("at most {:.0e} are counted", kMaxParameters)};
  }
  return std::nullopt;
}

// The scope must hold the tokens among which an expert chooses.
Found check_scope(const RunSpec& run) {
  const MoeSpec& moe = run.model.moe;
  if (moe.capacity_factor > 0 && moe.balance_scope == BalanceScope::kStep) {
    return Problem{"model.moe.capacity_factor",
                   "an expert's capacity cannot be counted over the step before",
                   "set model.moe.balance_scope = \"sequence\" or \"microstep\", or "
                   "model.moe.capacity_factor = 0"};
  }
  if (moe.drop_order == DropOrder::kScore && moe.balance_scope != BalanceScope::kSequence) {
    return Problem{"model.moe.drop_order", "tokens are dropped by score within a sequence only",
                   "set model.moe.balance_scope = \"sequence\" or model.moe.drop_order = "
                   "\"position\""};
  }
  const bool uses_scope = moe.balance == Balance::kAuxLoss || moe.capacity_factor > 0;
  if (uses_scope && moe.balance_scope == BalanceScope::kMicrostep && run.overlap.slices > 1) {
    return Problem{"model.moe.balance_scope",
                   fmt::format("each of {} slices would be balanced by itself, not the microstep",
                               run.overlap.slices),
                   "set overlap.slices = 1 or model.moe.balance_scope = \"sequence\""};
  }
  return std::nullopt;
}

Found check_ranks(const RunSpec& run) {
  const int experts = run.model.moe.experts;
  const ParallelSpec& parallel = run.parallel;
  if (parallel.expert > experts) {
    return Problem{
        "parallel.expert",
        fmt::format("{} experts cannot be spread over {} ranks", experts, parallel.expert),
        fmt::format("parallel.expert can be at most {}", experts)};
  }
  const int fewest = experts / parallel.expert;  // Of a rank.
  if (parallel.expert_chunks > fewest) {
    return Problem{"parallel.expert_chunks",
                   fmt::format("{} experts of a rank cannot take their tokens in {} parts", fewest,
                               parallel.expert_chunks),
                   fmt::format("parallel.expert_chunks can be at most {} with {} experts over {} "
                               "ranks",
                               fewest, experts, parallel.expert)};
  }
  return std::nullopt;
}

}  // namespace

Found check_moe(const RunSpec& run) {
  if (run.model.moe.experts == 0) return check_without_experts(run);
  if (auto found = check_layers(run.model)) return found;
  if (auto found = check_scope(run)) return found;
  return check_ranks(run);
}

Found check_expert_grid(const RunSpec& run) {
  const int expert = run.parallel.expert;
  const std::int64_t z = run.parallel.grid.z, data = run.parallel.grid.data;
  if (run.model.moe.experts == 0 || ExpertGrid::fits(run.parallel.grid, expert))
    return std::nullopt;
  return Problem{
      "parallel.expert",
      fmt::format("parallel.expert = {} neither divides z = {} nor is a multiple of it that "
                  "divides z·data = {}",
                  expert, z, z * data),
      fmt::format("on this grid parallel.expert can be {}",
                  fmt::join(possible_expert(run.model.moe, run.parallel.grid), ", "))};
}

std::vector<int> possible_expert(const MoeSpec& moe, const GridShape& grid) {
  const int all = grid.z * grid.data;
  std::vector<int> found;
  for (int expert = 1; expert <= std::min(moe.experts, all); ++expert) {
    if (ExpertGrid::fits(grid, expert)) found.push_back(expert);
  }
  return found;
}

}  // namespace fourfold
