#include "plan/moe_memory.h"

#include <algorithm>
#include <cmath>

#include "layout/expert_grid.h"

namespace fourfold {
namespace {

constexpr std::int64_t kF32 = 4;

std::int64_t experts_of(const RunSpec& run, const Grid& grid, Coords at) {
  const int ranks = run.parallel.expert;
  const ExpertMap map(run.model.moe.experts, ranks, run.parallel.expert_placement);
  return static_cast<std::int64_t>(
      map.of_rank(ExpertGrid(grid.shape(), ranks).place(at).rank).size());
}

Region block_of(const LinearSpec& linear, const Grid& grid, Coords at) {
  return weight_specs(linear).front().layout.block(grid, at);
}

}  // namespace

std::int64_t expert_rows(const RunSpec& run, const Grid& grid, Coords at, ExpertLoad load) {
  const MoeSpec& moe = run.model.moe;
  const std::int64_t tokens = run.train.micro_batch * run.train.seq_len * run.parallel.expert;
  const std::int64_t here = experts_of(run, grid, at);
  const double even = static_cast<double>(tokens * moe.top_k) * static_cast<double>(here) /
                      static_cast<double>(moe.experts);
  if (load == ExpertLoad::kEven) return static_cast<std::int64_t>(std::ceil(even));
  // A token takes an expert once.
  const std::int64_t most = tokens * std::min<std::int64_t>(moe.top_k, here);
  if (moe.capacity_factor == 0) return most;
  // Each scope rounds its capacity up by less than one row an expert.
  const double limit = even * moe.capacity_factor +
                       static_cast<double>(here * run.train.micro_batch * run.parallel.expert);
  return std::min(most, static_cast<std::int64_t>(limit));
}

MoeMemory::MoeMemory(const RunSpec& run, const Grid& grid, Coords at, const BlockLayers& block,
                     std::int64_t rows, std::int64_t expert_rows)
    : compute_(run.train.precision == Precision::kBf16 ? 2 : 4),
      rows_(rows),
      is_cut_(block.moe->router.rows_over_x),
      own_rows_(split_range(rows, is_cut_ ? grid.shape().x : 1, 0).size()),
      expert_rows_(expert_rows),
      top_k_(run.model.moe.top_k),
      experts_(run.model.moe.experts),
      hidden_(split_range(run.model.hidden, grid.shape().y, at.y).size()),
      activated_(split_range(run.model.moe.ffn, grid.shape().x, at.x).size()),
      expert_ranks_(block.moe->map.ranks()),
      shared_gate_(block.moe->shared_gate.has_value()),
      shards_(ExpertGrid(grid.shape(), block.moe->map.ranks()).storers() > 1) {
  up_ = activated_ * (run.model.gated() ? 2 : 1);
  elements_ = experts_of(run, grid, at) * (up_ + activated_) * hidden_;
  if (!block.has_mlp()) return;
  shared_activated_ = block_of(block.down, grid, at).dims[1].size();
  shared_up_ = shared_activated_ * (run.model.gated() ? 2 : 1);
}

std::int64_t MoeMemory::kept(const KeptActivations& kept) const {
  // Logits, scores and weights; of the experts' rows their weights.
  std::int64_t bytes = kF32 * (rows_ * (2 * experts_ + top_k_) + expert_rows_);
  if (shared_gate_) bytes += own_rows_ * (hidden_ * compute_ + kF32);
  if (kept.exchange) bytes += expert_rows_ * hidden_ * compute_;
  if (kept.up) bytes += (expert_rows_ * up_ + rows_ * shared_up_) * compute_;
  if (kept.mlp) bytes += (expert_rows_ * activated_ + rows_ * shared_activated_) * compute_;
  return bytes;
}

std::int64_t MoeMemory::backward() const {
  // Rows on their way back to the tokens, which are the gradient of the experts' input where
  // nothing travels; at the experts it and the output's gradient, those of the activation and of
  // what it was made of.
  const std::int64_t inputs = (expert_ranks_ > 1 || is_cut_ ? 2 : 1) * hidden_;
  std::int64_t elements = own_rows_ * top_k_ * hidden_ + expert_rows_ * (inputs + activated_ + up_);
  if (shared_up_ > 0) elements += own_rows_ * hidden_;
  return elements * compute_ + kF32 * (own_rows_ * top_k_ + expert_rows_);
}

std::int64_t MoeMemory::scattering() const { return shards_ ? elements_ * kF32 : 0; }

}  // namespace fourfold
