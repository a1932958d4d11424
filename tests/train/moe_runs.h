#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <sstream>
#include <string>

#include "comm/thread_world.h"
#include "device/intra_op_threads.h"
#include "tests/train/test_models.h"
#include "train/verify_grid.h"

// What tests of models with experts share.
namespace fourfold::testing {

/// A grid and its ranks over experts.
struct ExpertCase {
  GridShape grid;
  int expert = 1;
  int accumulation = 1;

  std::string name() const {
    return grid.name() + " e" + std::to_string(expert) + " accumulation " +
           std::to_string(accumulation);
  }
};

inline RunSpec on(const RunSpec& run, const ExpertCase& c) {
  RunSpec placed = with_grid(run, c.grid, c.accumulation);
  placed.parallel.expert = c.expert;
  return placed;
}

inline VerifyResult verify(const RunSpec& run, const VerifyReference& reference) {
  VerifyResult found;
  run_thread_ranks(run.parallel.grid.size(), {}, [&](Communicator& world) {
    set_intra_op_threads(1);
    const VerifyResult result = verify_grid(run, world, reference, random_samples(run));
    if (world.rank() == 0) found = result;
  });
  return found;
}

inline std::string text_of(const VerifyResult& r) {
  std::ostringstream text;
  text << "weights equal " << r.initial_weights_equal << ", loss " << r.loss_difference
       << ", gradient " << r.gradient_difference << ", tensor " << r.tensor_difference << " at "
       << r.worst_tensor << ", counts " << r.counts_difference << ", aux " << r.aux_difference
       << ", free " << r.free_difference << ", other choices " << r.other_choices.size();
  return text.str();
}

/// Assignments that found an expert full in the steps of a reference.
inline double dropped(const VerifyReference& reference) {
  double sum = 0;
  for (const auto& step : reference.steps) {
    for (const RouterTally& tally : step.tally) sum += tally.dropped;
  }
  return sum;
}

inline void expect_same_as_one_rank(const RunSpec& run, std::initializer_list<ExpertCase> cases,
                                    int steps = 2) {
  set_intra_op_threads(1);
  for (const ExpertCase& c : cases) {
    const VerifyReference reference =
        make_reference(run, steps, random_samples(run), c.accumulation);
    EXPECT_EQ(dropped(reference) > 0, run.model.moe.capacity_factor > 0);
    const VerifyResult r = verify(on(run, c), reference);
    EXPECT_TRUE(r.passes(verify_tolerance(run.train.precision))) << c.name() << ": " << text_of(r);
  }
}

/// A dense model with some experts in place of its MLPs.
inline ModelSpec with_experts(ModelSpec model, int experts = 5) {
  model.moe.experts = experts;
  model.moe.top_k = 2;
  model.moe.ffn = 37;
  model.moe.z_coef = 1e-3;
  model.dropout = 0.1;
  complete_model(model);
  return model;
}

/// Gated experts beside shared ones, chosen by sigmoid; every other layer.
inline ModelSpec with_shared_experts() {
  ModelSpec model = with_experts(tiny_llama(), 7);
  model.bias = true;
  model.moe.every = 2;
  model.moe.top_k = 3;
  model.moe.score = RouterScore::kSigmoid;
  model.moe.shared_experts = 2;
  model.moe.shared_gate = true;
  return model;
}

}  // namespace fourfold::testing
