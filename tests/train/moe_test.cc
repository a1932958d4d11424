// Models with experts: every grid of expert ranks against one rank, and what must not change a bit.
#include <gtest/gtest.h>

#include "comm/thread_world.h"
#include "device/intra_op_threads.h"
#include "tests/train/test_models.h"
#include "train/verify_grid.h"

namespace fourfold {
namespace {

constexpr int kSteps = 2;

/// A grid and its ranks over experts.
struct ExpertCase {
  GridShape grid;
  int expert = 1;
  int accumulation = 1;
};

VerifyResult verify(const RunSpec& run, const VerifyReference& reference) {
  VerifyResult found;
  run_thread_ranks(run.parallel.grid.size(), {}, [&](Communicator& world) {
    set_intra_op_threads(1);
    const VerifyResult result = verify_grid(run, world, reference, random_samples(run));
    if (world.rank() == 0) found = result;
  });
  return found;
}

RunSpec on(const RunSpec& run, const ExpertCase& c) {
  RunSpec placed = with_grid(run, c.grid, c.accumulation);
  placed.parallel.expert = c.expert;
  return placed;
}

void expect_same_as_one_rank(const RunSpec& run, std::initializer_list<ExpertCase> cases) {
  set_intra_op_threads(1);
  for (const ExpertCase& c : cases) {
    const VerifyReference reference =
        make_reference(run, kSteps, random_samples(run), c.accumulation);
    const VerifyResult r = verify(on(run, c), reference);
    EXPECT_TRUE(r.passes(verify_tolerance(run.train.precision)))
        << c.grid.name() << " e" << c.expert << " accumulation " << c.accumulation
        << ": weights equal " << r.initial_weights_equal << ", loss " << r.loss_difference
        << ", gradient " << r.gradient_difference << ", tensor " << r.tensor_difference << " at "
        << r.worst_tensor << ", counts " << r.counts_difference << ", aux " << r.aux_difference
        << ", free " << r.free_difference << ", other choices " << r.other_choices.size();
  }
}

ModelSpec with_experts(ModelSpec model) {
  model.moe.experts = 5;
  model.moe.top_k = 2;
  model.moe.ffn = 37;
  model.moe.z_coef = 1e-3;
  model.dropout = 0.1;
  complete_model(model);
  return model;
}

TEST(Moe, EveryGridAgreesWithOneRank) {
  const RunSpec run = testing::run_of(with_experts(testing::tiny_gpt()), 24);
  expect_same_as_one_rank(run, {{{1, 1, 1, 1}, 1, 1},
                                {{2, 1, 1, 1}, 1, 1},
                                {{1, 2, 1, 1}, 1, 1},
                                {{1, 1, 2, 1}, 1, 3},
                                {{1, 1, 2, 1}, 2, 1},
                                {{1, 1, 1, 2}, 2, 1},
                                {{2, 1, 2, 1}, 2, 1},
                                {{1, 2, 2, 1}, 2, 3},
                                {{2, 2, 1, 2}, 2, 1},
                                {{1, 1, 4, 1}, 4, 1},
                                {{1, 1, 4, 2}, 2, 1},
                                {{1, 1, 2, 4}, 4, 3},
                                {{2, 1, 2, 2}, 4, 1}});
}

}  // namespace
}  // namespace fourfold
