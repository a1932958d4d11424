// Models with experts: what must not change a bit on one grid.
#include <gtest/gtest.h>

#include "tests/train/moe_runs.h"

namespace fourfold::testing {
namespace {

/// Runs whose hashes over losses and gradients of a few steps must be one.
class MoeBits : public ::testing::Test {
 protected:
  void SetUp() override { set_intra_op_threads(1); }

  /// The run on a case's grid with everything of this test off.
  static RunSpec plain(const RunSpec& run, const ExpertCase& c) {
    RunSpec base = on(run, c);
    base.overlap = {.all_reduce = false,
                    .reduce_scatter = false,
                    .all_gather = false,
                    .data_reduce = false,
                    .data_gather = false};
    base.memory.zero = 0;
    return base;
  }

  /// Calls check(run, reference) for two models, one in bf16, on a few grids.
  template <class Check>
  static void for_each_run(Check check) {
    for (const bool rounded : {false, true}) {
      RunSpec run = run_of(rounded ? with_shared_experts() : with_experts(tiny_gpt(), 7), 8);
      run.train.precision = rounded ? Precision::kBf16 : Precision::kFp32;
      run.model.moe.capacity_factor = rounded ? 0 : 0.8;
      run.model.moe.jitter = rounded ? 0 : 0.1;
      const VerifyReference reference = make_reference(run, 2, random_samples(run));
      for (const ExpertCase& c : {ExpertCase{{3, 1, 2, 1}, 2, 2}, ExpertCase{{1, 2, 1, 2}, 2, 2},
                                  ExpertCase{{1, 1, 4, 1}, 2, 1}, ExpertCase{{1, 1, 2, 2}, 2, 1}}) {
        SCOPED_TRACE(run.model.family + " on " + c.name());
        check(plain(run, c), reference);
      }
    }
  }
};

TEST_F(MoeBits, RecomputeChangesNone) {
  for_each_run([](const RunSpec& base, const VerifyReference& reference) {
    const std::uint32_t expected = verify(base, reference).hash;
    for (const Recompute kind : {Recompute::kAttention, Recompute::kMlp, Recompute::kFull}) {
      for (const bool keep_collectives : {false, true}) {
        RunSpec run = base;
        run.memory.recompute = kind;
        run.overlap.keep_collectives = keep_collectives;
        run.parallel.expert_chunks = kind == Recompute::kFull ? 2 : 1;
        EXPECT_EQ(verify(run, reference).hash, expected) << static_cast<int>(kind);
      }
    }
  });
}

TEST_F(MoeBits, ChunksAndDuplicatesChangeNone) {
  for_each_run([](const RunSpec& base, const VerifyReference& reference) {
    const std::uint32_t expected = verify(base, reference).hash;
    for (const int chunks : {1, 2, 3}) {
      for (const bool drop_duplicates : {true, false}) {
        RunSpec run = base;
        run.parallel.expert_chunks = chunks;
        run.parallel.drop_duplicates = drop_duplicates;
        EXPECT_EQ(verify(run, reference).hash, expected) << chunks << ' ' << drop_duplicates;
      }
    }
  });
}

TEST_F(MoeBits, ExchangeByNodeFirstChangesNone) {
  const RunSpec one = run_of(with_experts(tiny_llama(), 9), 8);
  const VerifyReference reference = make_reference(one, 2, random_samples(one));
  RunSpec run = on(one, ExpertCase{{3, 1, 4, 1}, 4, 1});
  run.parallel.ranks_on_node = 6;
  const std::uint32_t expected = verify(run, reference).hash;
  for (const int chunks : {1, 2}) {
    run.parallel.expert_chunks = chunks;
    run.parallel.node_first_exchange = true;
    EXPECT_EQ(verify(run, reference).hash, expected) << chunks;
  }
}

TEST_F(MoeBits, OverlapChangesNone) {
  for_each_run([](const RunSpec& base, const VerifyReference& reference) {
    RunSpec run = base;
    run.memory.zero = 1;  // That weights are spread.
    run.memory.recompute = run.parallel.grid.x > 1 ? Recompute::kFull : Recompute::kNone;
    const std::uint32_t expected = verify(run, reference).hash;
    for (const OverlapSpec& overlap :
         {OverlapSpec{.reduce_scatter = false, .all_gather = false},
          OverlapSpec{.all_reduce = false, .all_gather = false},
          OverlapSpec{.all_reduce = false, .reduce_scatter = false},
          OverlapSpec{.data_reduce = false}, OverlapSpec{.data_gather = false},
          OverlapSpec{.prefetch_depth = 5, .keep_collectives = true},
          OverlapSpec{.cache_layers = 1}}) {
      run.overlap = overlap;
      run.parallel.expert_chunks = run.parallel.expert_chunks % 3 + 1;
      EXPECT_EQ(verify(run, reference).hash, expected) << run.parallel.expert_chunks << " chunks";
    }
  });
}

/// The hash covers only the rows that a rank updates, so ZeRO is compared by its losses.
TEST_F(MoeBits, ZeroChangesNone) {
  // Experts with replicas, with shards and without.
  for (const ExpertCase& c : {ExpertCase{{1, 1, 4, 2}, 2}, ExpertCase{{1, 1, 1, 4}, 2}}) {
    const RunSpec base = on(run_of(with_experts(tiny_gpt()), 8), c);
    std::vector<double> losses[2];
    for (const int zero : {0, 1}) {
      RunSpec run = base;
      run.memory.zero = zero;
      run_thread_ranks(run.parallel.grid.size(), {}, [&](Communicator& world) {
        set_intra_op_threads(1);
        RankModel model(run, world);
        for (int step = 0; step < 4; ++step) {
          const StepResult r = model.train_step(step, step * 8, random_samples(run));
          if (world.rank() == 0) losses[zero].insert(losses[zero].end(), {r.loss, r.grad_norm});
        }
      });
    }
    EXPECT_EQ(losses[0], losses[1]);
  }
}

/// Products of fewer rows may round otherwise: near, not equal.
TEST_F(MoeBits, SlicesAreOneRanks) {
  for (ModelSpec model : {with_experts(tiny_gpt()), with_shared_experts()}) {
    RunSpec run = run_of(model, 12);
    const VerifyReference reference = make_reference(run, 2, random_samples(run));
    for (const ExpertCase& c :
         {ExpertCase{{3, 1, 2, 1}, 2}, ExpertCase{{1, 2, 1, 2}, 2}, ExpertCase{{1, 1, 2, 2}, 4}}) {
      for (const int slices : {2, 1000}) {
        for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
          RunSpec split = on(run, c);
          split.overlap.slices = slices;
          split.memory.recompute = recompute;
          split.parallel.expert_chunks = slices == 2 && c.expert == 2 ? 2 : 1;
          const VerifyResult r = verify(split, reference);
          EXPECT_TRUE(r.passes(verify_tolerance(Precision::kFp32)))
              << c.name() << ", " << slices << " slices: " << text_of(r);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fourfold::testing
