#include "plan/recompute_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "base/units.h"
#include "plan/memory_model.h"

namespace fourfold {
namespace {

constexpr Recompute kSteps[] = {Recompute::kAttention, Recompute::kMlp, Recompute::kFull};

/// A run whose blocks' recompute is tried out.
class Trial {
 public:
  explicit Trial(const RunSpec& run) : run_(run) {
    run_.memory.recompute = Recompute::kBudget;
    run_.memory.by_block.assign(static_cast<std::size_t>(run.model.layers), Recompute::kNone);
  }
  std::vector<Recompute>& blocks() { return run_.memory.by_block; }
  std::int64_t peak() const { return predict_memory(run_).peak().total(); }
  double work(std::size_t block, Recompute recompute) const {
    return recompute_work(run_, static_cast<int>(block), recompute);
  }
  bool alike(std::size_t a, std::size_t b) const {
    return has_experts(a) == has_experts(b) && run_.memory.by_block[a] == run_.memory.by_block[b];
  }
  std::int64_t peak_with(std::size_t block, Recompute recompute) {
    const Recompute before = std::exchange(blocks()[block], recompute);
    const std::int64_t bytes = peak();
    blocks()[block] = before;
    return bytes;
  }

 private:
  bool has_experts(std::size_t block) const {
    return run_.model.moe.in_layer(static_cast<int>(block));
  }
  RunSpec run_;
};

/// More recompute of one block: what it saves of the peak, and what it costs.
struct Upgrade {
  std::size_t block = 0;
  Recompute to = Recompute::kNone;
  std::int64_t saved = 0;
  double work = 0;
  bool better_than(const Upgrade& other) const {
    return saved > 0 && (other.saved <= 0 || static_cast<double>(saved) * other.work >
                                                 static_cast<double>(other.saved) * work);
  }
};

/// The best upgrade of the first of all blocks that are alike.
Upgrade best_upgrade(Trial& trial, std::int64_t peak) {
  Upgrade best;
  for (std::size_t block = 0; block < trial.blocks().size(); ++block) {
    bool first = true;
    for (std::size_t before = 0; before < block; ++before) {
      first = first && !trial.alike(before, block);
    }
    const Recompute now = trial.blocks()[block];
    if (!first || now == Recompute::kFull) continue;
    for (const Recompute to : kSteps) {
      if (to == now || (now != Recompute::kNone && to != Recompute::kFull)) continue;
      const Upgrade upgrade{block, to, peak - trial.peak_with(block, to),
                            trial.work(block, to) - trial.work(block, now)};
      if (upgrade.better_than(best)) best = upgrade;
    }
  }
  return best;
}

/// As many of the blocks that are alike as it takes.
void apply(Trial& trial, const Upgrade& upgrade, std::int64_t excess) {
  auto count = (excess + upgrade.saved - 1) / upgrade.saved;
  std::vector<std::size_t> alike;
  for (std::size_t block = upgrade.block; block < trial.blocks().size(); ++block) {
    if (trial.alike(upgrade.block, block) && count-- > 0) alike.push_back(block);
  }
  for (const std::size_t block : alike) trial.blocks()[block] = upgrade.to;
}

/// Where less would have done, as of the last upgrades, less is taken, from the last block on.
void give_back(Trial& trial, std::int64_t budget) {
  for (std::size_t block = trial.blocks().size(); block-- > 0;) {
    std::vector<Recompute> cheaper{Recompute::kNone, Recompute::kAttention, Recompute::kMlp};
    const double now = trial.work(block, trial.blocks()[block]);
    std::erase_if(cheaper, [&](Recompute r) { return trial.work(block, r) >= now; });
    std::sort(cheaper.begin(), cheaper.end(), [&](Recompute a, Recompute b) {
      return trial.work(block, a) < trial.work(block, b);
    });
    for (const Recompute to : cheaper) {
      if (trial.peak_with(block, to) > budget) continue;
      trial.blocks()[block] = to;
      break;
    }
  }
}

}  // namespace

double recompute_work(const RunSpec& run, int block, Recompute recompute) {
  const ModelSpec& m = run.model;
  const double hidden = static_cast<double>(m.hidden), width = m.heads * m.head_dim;
  const double half_of_keys = 0.5 * static_cast<double>(run.train.seq_len);  // Causal.
  const double attention =
      hidden * (m.heads + 2 * m.kv_heads) * m.head_dim + 2 * half_of_keys * width;
  const bool experts = m.moe.in_layer(block);
  const double ffn = static_cast<double>(experts ? m.moe.top_k * m.moe.ffn : m.ffn);
  const double mlp = hidden * ffn * (m.gated() ? 2 : 1);
  switch (recompute) {
    case Recompute::kAttention:
      return attention;
    case Recompute::kMlp:
      return mlp;
    case Recompute::kFull:
      return attention + width * hidden + mlp;
    case Recompute::kNone:
    case Recompute::kBudget:
      break;
  }
  return 0;
}

Result<std::vector<Recompute>> choose_recompute(const RunSpec& run) {
  Trial trial(run);
  const std::int64_t budget = run.memory.budget;
  for (std::int64_t peak = trial.peak(); peak > budget; peak = trial.peak()) {
    const Upgrade upgrade = best_upgrade(trial, peak);
    if (upgrade.saved <= 0) {
      return Error(
          ErrorKind::kUsage,
          fmt::format("memory.budget {} is less than the {} that a rank takes at the least",
                      format_bytes(budget), format_bytes(peak)),
          "take a larger budget, a smaller train.micro_batch or a larger grid");
    }
    apply(trial, upgrade, peak - budget);
  }
  give_back(trial, budget);
  return trial.blocks();
}

void resolve_recompute(RunSpec& run) {
  if (run.memory.recompute == Recompute::kBudget) {
    run.memory.by_block = choose_recompute(run).value();
  }
}

}  // namespace fourfold
