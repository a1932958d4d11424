#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/engine.h"
#include "ckpt/store.h"
#include "tests/crash/state_fixture.h"

namespace fourfold {

/// Which tensors that rotate a checkpoint has, of which step: by "name@kind".
using Versions = std::map<std::string, int>;

/// Tensors that a save takes, among those that rotate: bit i for the i-th.
using Taken = unsigned;
constexpr int kRotatingExperts = 3;
constexpr int kRotating = 2 * kRotatingExperts;
constexpr Taken kAllTaken = (1u << kRotating) - 1;

/// `before` as a save that takes these leaves it.
inline Versions versions_after(Versions before, int step, Taken taken) {
  for (int i = 0; i < kRotating; ++i) {
    const char* kind = i % 2 == 0 ? kKindMaster : kKindExpAvg;
    if (taken >> i & 1) before["experts." + std::to_string(i / 2) + "@" + kind] = step;
  }
  return before;
}

/// One rank of a run whose experts rotate: it loads, trains (changes its state) and saves.
class RotatingRank {
 public:
  RotatingRank(Communicator& world, Fs& fs, const std::string& dir, const GridShape& grid,
               EngineOptions options = {})
      : world_(world),
        store_(fs, dir, log_),
        grid_(grid),
        state_(make(grid, world.rank())),
        options_(std::move(options)) {}

  /// Loads what the run goes on from; the error, or "".
  std::string start() {
    state_.clear();
    auto loaded = store_.load_latest(world_, state_.tensors());
    if (!loaded) return loaded.error().what();
    EngineOptions options = options_;
    if (loaded.value()) {
      loaded_ = loaded.value()->manifest;
      options.base = std::move(loaded.value()->manifest);
      options.save.incarnation = loaded.value()->incarnation;
    }
    engine_.emplace(world_, store_, state_.tensors(), std::move(options), Log());
    return "";
  }

  /// Begins a save of the state of a step, which then changes.
  void begin_save(int step, Taken taken) {
    state_.fill(step);
    engine_->save(test_meta(step, grid_, 1), selection(taken));
    engine_->before_update();
    state_.clear();
  }
  /// The error of a save and the retention after it; "" if none.
  std::string save(int step, Taken taken) {
    begin_save(step, taken);
    engine_->drain();
    const SaveReport report = engine_->take_reports().at(0).save;
    if (report.error) return report.error->what();
    return report.retention_error ? std::string("retention: ") + report.retention_error->what()
                                  : std::string();
  }

  /// What is wrong with the state, given the versions of what rotates; the rest is of the step.
  std::string difference(int step, const Versions& versions) {
    return state_.difference(
        [&](const StateTensor& t) { return t.rotates ? versions.at(t.key()) : step; });
  }
  /// What a load of one checkpoint gets wrong.
  std::string loaded_difference(const std::string& folder, int step, const Versions& versions) {
    state_.clear();
    const auto loaded = store_.load(world_, folder, state_.tensors());
    return loaded ? difference(step, versions) : loaded.error().what();
  }

  SaveSelection selection(Taken taken) {
    int index = 0;
    SaveSelection selected;
    for (const StateTensor& t : state_.tensors()) {
      selected.push_back(t.rotates && (taken >> index++ & 1));
    }
    return selected;
  }

  /// The checkpoint that start() loaded.
  const std::optional<Manifest>& loaded() const { return loaded_; }
  Communicator& world() { return world_; }
  CheckpointEngine& engine() { return *engine_; }
  CheckpointStore& store() { return store_; }
  TestState& state() { return state_; }
  std::vector<std::string> lines;

 private:
  static TestState make(const GridShape& grid, int rank) {
    TestState state(grid, rank, /*zero=*/true, /*large=*/false);
    state.add_experts(kRotatingExperts);
    return state;
  }

  Communicator& world_;
  Log log_{[this](LogLevel, std::string_view line) { lines.emplace_back(line); }};
  CheckpointStore store_;
  GridShape grid_;
  TestState state_;
  EngineOptions options_;
  std::optional<Manifest> loaded_;
  std::optional<CheckpointEngine> engine_;
};

/// Runs as many ranks as the grid has; each acts on its RotatingRank, and gives the same text.
template <class Act>
std::string on_rotating_ranks(Fs& fs, const std::string& dir, const GridShape& grid,
                              const EngineOptions& options, Act act) {
  std::vector<std::string> results(static_cast<std::size_t>(grid.size()));
  const auto rank_main = [&](Communicator& world) {
    RotatingRank rank(world, fs, dir, grid, options);
    results[static_cast<std::size_t>(world.rank())] = act(rank);
  };
  if (grid.size() == 1) {
    rank_main(*make_solo());
  } else {
    run_thread_ranks(grid.size(), {}, rank_main);
  }
  for (const std::string& result : results) {
    if (result != results[0]) return "ranks disagree: " + results[0] + " and " + result;
  }
  return results[0];
}

}  // namespace fourfold
