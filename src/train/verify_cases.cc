#include "train/verify_cases.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "plan/recompute_choice.h"
#include "spec/config_builder.h"
#include "spec/run_config.h"
#include "spec/validate.h"
#include "train/verify_reference.h"

namespace fourfold {
namespace {

constexpr std::array<int, 2> kAccumulations{1, 3};

/// A grid and its ranks over experts.
struct Place {
  GridShape grid;
  int expert = 1;
  bool operator==(const Place&) const = default;
};

/// Every axis alone and together.
const std::vector<Place> kDensePlaces{
    {{1, 1, 1, 1}}, {{2, 1, 1, 1}}, {{1, 2, 1, 1}}, {{1, 1, 2, 1}}, {{1, 1, 1, 2}},
    {{2, 2, 1, 1}}, {{1, 2, 2, 1}}, {{2, 1, 2, 1}}, {{2, 1, 1, 2}}, {{3, 2, 1, 1}},
    {{1, 3, 2, 1}}, {{2, 2, 2, 1}}, {{2, 2, 2, 2}}};

/// Experts over z, with shards and without, over data and over both.
const std::vector<Place> kExpertPlaces{
    {{1, 1, 1, 1}, 1}, {{3, 2, 1, 1}, 1}, {{1, 1, 2, 1}, 2}, {{1, 1, 1, 2}, 2}, {{2, 1, 2, 1}, 2},
    {{1, 2, 2, 1}, 2}, {{2, 2, 1, 2}, 2}, {{1, 1, 4, 1}, 2}, {{1, 1, 4, 1}, 4}, {{1, 1, 4, 2}, 2},
    {{1, 1, 2, 4}, 4}, {{2, 1, 2, 2}, 2}, {{2, 1, 2, 2}, 4}};

std::vector<Place> places_of(const RunSpec& run) {
  std::vector<Place> places = run.model.moe.experts > 0 ? kExpertPlaces : kDensePlaces;
  const Place own{run.parallel.grid, run.parallel.expert};
  const bool listed = std::find(places.begin(), places.end(), own) != places.end();
  if (!listed && !grid_is_open(own.grid)) places.insert(places.begin(), own);
  return places;
}

/// The run's model with each way of balance, its own first.
std::vector<ModelSpec> balances_of(const ModelSpec& model) {
  std::vector<ModelSpec> models{model};
  if (model.moe.experts == 0) return models;
  const std::pair<Balance, BalanceScope> ways[] = {
      {Balance::kAuxLoss, BalanceScope::kSequence}, {Balance::kAuxLoss, BalanceScope::kMicrostep},
      {Balance::kAuxLoss, BalanceScope::kStep},     {Balance::kLossFree, BalanceScope::kSequence},
      {Balance::kForced, BalanceScope::kSequence},  {Balance::kNone, BalanceScope::kSequence}};
  for (const auto& [balance, scope] : ways) {
    ModelSpec other = model;
    other.moe.balance = balance;
    other.moe.balance_scope = scope;
    if (!(other == model)) models.push_back(std::move(other));
  }
  return models;
}

/// Why a run cannot be verified on its grid; empty where it can.
std::string obstacle(const RunSpec& run, int accumulation) {
  const GridShape& grid = run.parallel.grid;
  if (run.train.global_batch % (std::int64_t{grid.z} * grid.data * accumulation) != 0) {
    return fmt::format("global_batch {} is not a multiple of z·data·accumulation = {}",
                       run.train.global_batch, grid.z * grid.data * accumulation);
  }
  auto problem = check_run(run);
  if (!problem) problem = check_grid(run);
  return problem ? problem->message : "";
}

}  // namespace

std::string VerifyCase::grid_name() const {
  const std::string grid = run.parallel.grid.name();
  return run.model.moe.experts == 0 ? grid : fmt::format("{} e{}", grid, run.parallel.expert);
}

std::string VerifyCase::balance_name() const {
  const MoeSpec& moe = run.model.moe;
  if (moe.experts == 0) return "";
  const auto name = EnumNames<Balance>::get()[static_cast<std::size_t>(moe.balance)];
  if (moe.balance != Balance::kAuxLoss && moe.capacity_factor == 0) return name;
  return name + " " + EnumNames<BalanceScope>::get()[static_cast<std::size_t>(moe.balance_scope)];
}

int VerifyCase::reference_accumulation() const {
  return run.model.moe.balance_scope == BalanceScope::kMicrostep ? accumulation : 1;
}

std::string VerifyCase::reference_key() const {
  return fmt::format("{} {}", balance_name(), reference_accumulation());
}

std::vector<VerifyCase> verify_cases(const RunSpec& run) {
  std::vector<Recompute> recomputes{run.memory.recompute};
  if (run.model.moe.experts > 0) recomputes = {Recompute::kNone, Recompute::kFull};
  std::vector<VerifyCase> cases;
  for (const ModelSpec& model : balances_of(run.model)) {
    for (const Place& place : places_of(run)) {
      for (const int accumulation : kAccumulations) {
        for (const Recompute recompute : recomputes) {
          VerifyCase& c = cases.emplace_back();
          c.run = with_grid(run, place.grid, accumulation);
          c.run.model = model;
          c.run.parallel.expert = place.expert;
          c.run.memory.recompute = recompute;
          c.obstacle = obstacle(c.run, accumulation);
          if (c.obstacle.empty()) resolve_recompute(c.run);
          c.accumulation = accumulation;
        }
      }
    }
  }
  return cases;
}

}  // namespace fourfold
