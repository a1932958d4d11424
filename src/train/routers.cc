#include "train/routers.h"

#include <fmt/core.h>

#include <numeric>

#include "policy/held_region.h"

namespace fourfold {
namespace {

constexpr std::size_t kSums = 4;  // Of a tally, beside the counts.

}  // namespace

Routers::Routers(const ModelSpec& model) : spec_(model.moe) {
  const auto experts = static_cast<std::size_t>(spec_.experts);
  for (int block = 0; block < model.layers; ++block) {
    memory_.emplace_back();
    tally_.emplace_back();
    if (!spec_.in_layer(block)) continue;
    memory_.back().bias.resize(experts);
    memory_.back().tokens.resize(experts);
    tally_.back().tokens.resize(experts);
  }
}

void Routers::begin_step() {
  for (RouterTally& tally : tally_) {
    RouterTally zero;
    zero.tokens.resize(tally.tokens.size());
    tally = std::move(zero);
  }
}

void Routers::sum(Communicator& ranks) {
  if (spec_.experts == 0) return;
  std::vector<double> all;
  for (const RouterTally& t : tally_) {
    if (t.tokens.empty()) continue;
    all.insert(all.end(), t.tokens.begin(), t.tokens.end());
    all.insert(all.end(), {t.dropped, t.balance, t.z, t.entropy});
  }
  ranks.all_reduce({all.data(), static_cast<std::int64_t>(all.size()), DType::kF64}, ReduceOp::kSum)
      .wait_host();
  const double* next = all.data();
  for (RouterTally& t : tally_) {
    if (t.tokens.empty()) continue;
    t.tokens.assign(next, next + t.tokens.size());
    next += t.tokens.size();
    t.dropped = next[0];
    t.balance = next[1];
    t.z = next[2];
    t.entropy = next[3];
    next += kSums;
  }
}

void Routers::update() {
  for (std::size_t block = 0; block < memory_.size(); ++block) {
    RouterMemory& memory = memory_[block];
    const std::vector<double>& tokens = tally_[block].tokens;
    memory.tokens.assign(tokens.begin(), tokens.end());
    if (spec_.balance != Balance::kLossFree || tokens.empty()) continue;
    const auto experts = static_cast<double>(tokens.size());
    const double mean = std::accumulate(tokens.begin(), tokens.end(), 0.0) / experts;
    std::vector<double> bias(memory.bias.begin(), memory.bias.end());
    for (std::size_t e = 0; e < bias.size(); ++e) {
      const int sign = (tokens[e] < mean) - (tokens[e] > mean);
      bias[e] += spec_.bias_rate * sign;
    }
    const double shift = std::accumulate(bias.begin(), bias.end(), 0.0) / experts;
    for (std::size_t e = 0; e < bias.size(); ++e) {
      memory.bias[e] = static_cast<float>(bias[e] - shift);
    }
  }
}

double Routers::aux_loss(std::int64_t tokens) const {
  double sum = 0;
  for (const RouterTally& t : tally_) sum += t.balance;
  return spec_.aux_coef * spec_.experts * sum / static_cast<double>(tokens);
}

double Routers::z_loss(std::int64_t tokens) const {
  double sum = 0;
  for (const RouterTally& t : tally_) sum += t.z;
  return spec_.z_coef * sum / static_cast<double>(tokens);
}

void Routers::add_state(int rank, int world_size, std::vector<StateTensor>& state) {
  for (std::size_t block = 0; block < memory_.size(); ++block) {
    RouterMemory& memory = memory_[block];
    if (memory.tokens.empty()) continue;
    StateTensor t;
    t.kind = "value";
    t.cls = TensorClass::kState;
    t.shape = {spec_.experts};
    const HeldRegion held = held_by_all(t.shape, rank, world_size);
    t.region = held.region;
    t.replica = held.replica;
    t.replicas = held.replicas;
    t.replica_set = held.replica_set;
    t.optional = true;  // Of a run that balanced in another way.
    auto add = [&](const char* name, DType dtype, void* data) {
      t.name = fmt::format("model.layers.{}.mlp.gate.{}", block, name);
      t.dtype = dtype;
      t.data = data;
      state.push_back(t);
    };
    if (spec_.balance == Balance::kLossFree) {
      add("e_score_correction_bias", DType::kF32, memory.bias.data());
    }
    if (spec_.balance_scope == BalanceScope::kStep) {
      add("tokens_per_expert", DType::kI64, memory.tokens.data());
    }
  }
}

}  // namespace fourfold
