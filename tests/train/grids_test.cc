// Every grid against one rank, and what must not change a bit on one grid.
#include <gtest/gtest.h>

#include <limits>

#include "comm/thread_world.h"
#include "device/intra_op_threads.h"
#include "kernels/tile_product.h"
#include "tests/train/test_models.h"
#include "train/verify_grid.h"

namespace fourfold {
namespace {

constexpr int kSteps = 3;

VerifyResult verify(const RunSpec& run, const VerifyReference& reference) {
  VerifyResult found;
  run_thread_ranks(run.parallel.grid.size(), {}, [&](Communicator& world) {
    set_intra_op_threads(1);
    const VerifyResult result = verify_grid(run, world, reference, random_samples(run));
    if (world.rank() == 0) found = result;
  });
  return found;
}

void expect_same_as_one_rank(const ModelSpec& model, std::initializer_list<GridShape> grids) {
  set_intra_op_threads(1);
  RunSpec run = testing::run_of(model, 12);
  const VerifyReference reference = make_reference(run, kSteps, random_samples(run));
  for (const GridShape& grid : grids) {
    for (const int accumulation : {1, 3}) {
      const VerifyResult r = verify(with_grid(run, grid, accumulation), reference);
      EXPECT_TRUE(r.passes(verify_tolerance(Precision::kFp32)))
          << grid.name() << " accumulation " << accumulation << ": weights equal "
          << r.initial_weights_equal << ", loss " << r.loss_difference << ", gradient "
          << r.gradient_difference << ", tensor " << r.tensor_difference << " at "
          << r.worst_tensor;
    }
  }
}

ModelSpec with_dropout(ModelSpec model) {
  model.dropout = 0.2;
  return model;
}

TEST(Grids, GptWithUnevenHiddenVocabularyAndMlp) {
  // Hidden 42 over y = 4 and 5 is uneven; more z than some bias has rows; x = 6 is one head each.
  expect_same_as_one_rank(with_dropout(testing::tiny_gpt()),
                          {{1, 4, 1, 1}, {1, 5, 1, 1}, {6, 1, 1, 1}, {3, 1, 2, 1}, {1, 2, 2, 2}});
}

TEST(Grids, LlamaWithGroupedQueries) {
  expect_same_as_one_rank(with_dropout(testing::tiny_llama()),
                          {{3, 1, 1, 2}, {3, 2, 1, 1}, {1, 5, 1, 1}, {1, 1, 4, 1}});
}

TEST(Grids, KeyValueHeadsSharedByRanksOfX) {
  ModelSpec model = with_dropout(testing::tiny_llama());
  model.kv_heads = 1;
  expect_same_as_one_rank(model, {{2, 1, 1, 1}, {3, 1, 1, 1}, {6, 1, 1, 1}, {2, 2, 2, 1}});
  model.kv_heads = 2;
  model.bias = true;
  expect_same_as_one_rank(model, {{6, 1, 1, 1}, {2, 1, 1, 2}});
}

TEST(Grids, NormsOfQueriesAndKeys) {
  // Of all heads together, the statistics are summed over x; a shared key head counts once.
  ModelSpec model = testing::tiny_llama();
  for (const QkNorm norm : {QkNorm::kHead, QkNorm::kWhole}) {
    model.qk_norm = norm;
    expect_same_as_one_rank(model, {{3, 1, 2, 1}, {6, 1, 1, 1}, {1, 5, 1, 2}});
  }
  model.kv_heads = 1;
  model.bias = true;
  expect_same_as_one_rank(model, {{2, 2, 1, 1}, {3, 1, 1, 2}});
}

TEST(Grids, UntiedGptAndTiedLlama) {
  ModelSpec gpt = testing::tiny_gpt(), llama = testing::tiny_llama();
  gpt.tie_embeddings = false;
  llama.tie_embeddings = true;
  expect_same_as_one_rank(gpt, {{2, 3, 1, 1}, {1, 1, 2, 2}});
  expect_same_as_one_rank(llama, {{3, 1, 2, 1}});
}

TEST(Grids, HeadThatGathersTheHiddenStates) {
  for (const bool tied : {true, false}) {
    ModelSpec model = testing::tiny_gpt();
    model.tie_embeddings = tied;
    model.vocab = 1501;  // Far more than hidden, so that this layout is the cheaper one.
    ASSERT_EQ(
        choose_head_layout({2, 3, 1, 1}, model.vocab, model.hidden, 12 * model.seq_len, tied, 4),
        HeadLayout::kGatherHidden);
    expect_same_as_one_rank(model, {{1, 2, 1, 1}, {2, 3, 1, 1}, {1, 4, 2, 1}, {3, 2, 1, 2}});
  }
}

/// The hash over losses and gradients of a few steps.
std::uint32_t bits_of(const RunSpec& run, const VerifyReference& reference) {
  return verify(run, reference).hash;
}

TEST(Grids, ZeroAndRecomputeChangeNoBit) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    set_intra_op_threads(1);
    ModelSpec biased = with_dropout(testing::tiny_llama());
    biased.bias = true;  // Of a gated MLP: added before the gate, and not again.
    biased.qk_norm = QkNorm::kWhole;
    RunSpec run = testing::run_of(biased, 12);
    run.train.precision = precision;
    const VerifyReference reference = make_reference(run, kSteps, random_samples(run));
    RunSpec base = with_grid(run, GridShape(1, 2, 1, 3), 2);
    base.memory.zero = 0;
    for (const Recompute kind : {Recompute::kAttention, Recompute::kMlp, Recompute::kFull}) {
      for (const bool keep_collectives : {false, true}) {
        RunSpec recompute = base;
        recompute.memory.recompute = kind;
        recompute.overlap.keep_collectives = keep_collectives;
        EXPECT_EQ(bits_of(base, reference), bits_of(recompute, reference));
      }
    }
    // The hash covers only the rows that a rank updates, so ZeRO is compared by its losses.
    RunSpec zero = base;
    zero.memory.zero = 1;
    std::vector<double> losses[2];
    for (const int which : {0, 1}) {
      run_thread_ranks(6, {}, [&](Communicator& world) {
        set_intra_op_threads(1);
        RankModel model(which == 0 ? base : zero, world);
        for (int step = 0; step < 4; ++step) {
          const StepResult r = model.train_step(step, step * 12, random_samples(run));
          if (world.rank() == 0) losses[which].insert(losses[which].end(), {r.loss, r.grad_norm});
        }
      });
    }
    EXPECT_EQ(losses[0], losses[1]);
  }
}

/// So does recompute that differs from block to block.
TEST(Grids, RecomputeByBlockChangesNoBit) {
  set_intra_op_threads(1);
  RunSpec run = testing::run_of(with_dropout(testing::tiny_gpt()), 12);
  const VerifyReference reference = make_reference(run, kSteps, random_samples(run));
  for (const GridShape& grid : {GridShape(1, 1, 1, 1), GridShape(2, 1, 2, 1)}) {
    RunSpec mixed = with_grid(run, grid, 1);
    const auto expected = bits_of(mixed, reference);
    mixed.memory.recompute = Recompute::kBudget;
    mixed.memory.by_block.assign(static_cast<std::size_t>(run.model.layers), Recompute::kNone);
    mixed.memory.by_block.front() = Recompute::kFull;
    EXPECT_EQ(bits_of(mixed, reference), expected) << grid.name();
    mixed.memory.by_block.front() = Recompute::kMlp;
    mixed.memory.by_block.back() = Recompute::kAttention;
    EXPECT_EQ(bits_of(mixed, reference), expected) << grid.name();
  }
}

/// What runs behind computation gives the bits of what does not, with accumulation and recompute,
/// whose gathers are others.
TEST(Grids, OverlapChangesNoBit) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    set_intra_op_threads(1);
    RunSpec run = testing::run_of(with_dropout(testing::tiny_gpt()), 12);
    run.train.precision = precision;
    const VerifyReference reference = make_reference(run, kSteps, random_samples(run));
    for (const GridShape& grid :
         {GridShape(2, 1, 2, 1), GridShape(1, 2, 3, 1), GridShape(1, 1, 2, 3)}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        RunSpec base = with_grid(run, grid, 2);
        base.memory.recompute = recompute;
        base.overlap = {.all_reduce = false,
                        .reduce_scatter = false,
                        .all_gather = false,
                        .data_reduce = false,
                        .data_gather = false};
        const auto expected = bits_of(base, reference);
        for (const OverlapSpec& overlap :
             {OverlapSpec{.reduce_scatter = false, .all_gather = false},
              OverlapSpec{.all_reduce = false, .all_gather = false},
              OverlapSpec{.all_reduce = false, .reduce_scatter = false},
              OverlapSpec{.data_reduce = false}, OverlapSpec{.data_gather = false},
              OverlapSpec{.prefetch_depth = 5}, OverlapSpec{.cache_layers = 1},
              OverlapSpec{.all_gather = false, .cache_layers = 9}}) {
          RunSpec other = base;
          other.overlap = overlap;
          EXPECT_EQ(bits_of(other, reference), expected) << grid.name();
        }
      }
    }
  }
}

/// Products of fewer rows may round otherwise: near, not equal.
TEST(Grids, SlicesAreOneRanks) {
  set_intra_op_threads(1);
  for (const bool tied : {true, false}) {
    const RunSpec run =
        testing::run_of(with_dropout(tied ? testing::tiny_gpt() : testing::tiny_llama()), 12);
    const VerifyReference reference = make_reference(run, kSteps, random_samples(run));
    for (const GridShape& grid :
         {GridShape(3, 2, 1, 1), GridShape(1, 2, 2, 1), GridShape(1, 1, 1, 2)}) {
      for (const int slices : {2, 5, 1000}) {
        for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
          RunSpec split = with_grid(run, grid, grid.x == 3 ? 1 : 2);
          split.overlap.slices = slices;
          split.memory.recompute = recompute;
          const VerifyResult r = verify(split, reference);
          EXPECT_TRUE(r.passes(verify_tolerance(Precision::kFp32)))
              << grid.name() << ", " << slices << " slices: loss " << r.loss_difference
              << ", gradient " << r.gradient_difference << ", tensor " << r.tensor_difference
              << " at " << r.worst_tensor;
        }
      }
    }
  }
}

/// A residual stream that is cut over x: gradients of its vectors are summed in another order.
void expect_cut_stream_is_one_ranks(const ModelSpec& model, const std::vector<GridShape>& grids) {
  set_intra_op_threads(1);
  const RunSpec run = testing::run_of(model, 12);
  const VerifyReference reference = make_reference(run, kSteps, random_samples(run));
  for (const GridShape& grid : grids) {
    for (const int slices : {1, 3}) {
      RunSpec cut = with_grid(run, grid, grid.z * grid.data == 1 ? 2 : 1);
      cut.overlap.sequence_parallel = true;
      cut.overlap.slices = slices;
      const VerifyResult r = verify(cut, reference);
      EXPECT_TRUE(r.passes(verify_tolerance(Precision::kFp32)))
          << grid.name() << ", " << slices << " slices: loss " << r.loss_difference << ", gradient "
          << r.gradient_difference << ", tensor " << r.tensor_difference << " at "
          << r.worst_tensor;
    }
  }
}

TEST(Grids, CutStreamsAreOneRanks) {
  expect_cut_stream_is_one_ranks(with_dropout(testing::tiny_gpt()),
                                 {{2, 1, 1, 1}, {3, 2, 1, 1}, {2, 1, 2, 1}, {2, 1, 1, 3}});
  ModelSpec llama = with_dropout(testing::tiny_llama());
  llama.bias = true;
  llama.qk_norm = QkNorm::kWhole;
  expect_cut_stream_is_one_ranks(llama, {{3, 1, 2, 1}, {6, 1, 1, 1}});
}

/// However the rows are gathered again, behind what, and whatever is computed again.
TEST(Grids, WaysOfACutStreamChangeNoBit) {
  set_intra_op_threads(1);
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    RunSpec run = testing::run_of(with_dropout(testing::tiny_llama()), 12);
    run.train.precision = precision;
    const VerifyReference reference = make_reference(run, kSteps, random_samples(run));
    for (const GridShape& grid : {GridShape(3, 1, 2, 1), GridShape(3, 2, 1, 1)}) {
      RunSpec base = with_grid(run, grid, 2);
      base.overlap.sequence_parallel = true;
      const auto expected = bits_of(base, reference);
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        for (const OverlapSpec& overlap :
             {OverlapSpec{.sequence_parallel = true},
              OverlapSpec{.sequence_parallel = true, .sp_regather = false},
              OverlapSpec{.all_reduce = false, .sequence_parallel = true},
              OverlapSpec{.sequence_parallel = true, .keep_collectives = true},
              OverlapSpec{
                  .sequence_parallel = true, .sp_regather = false, .keep_collectives = true}}) {
          RunSpec other = base;
          other.overlap = overlap;
          other.memory.recompute = recompute;
          EXPECT_EQ(bits_of(other, reference), expected) << grid.name();
        }
      }
    }
  }
}

TEST(Grids, Bf16StaysNearOneRank) {
  set_intra_op_threads(1);
  RunSpec run = testing::run_of(with_dropout(testing::tiny_gpt()), 12);
  run.train.precision = Precision::kBf16;
  const VerifyReference reference = make_reference(run, kSteps, random_samples(run));
  for (const GridShape& grid : {GridShape(2, 3, 1, 1), GridShape(1, 1, 3, 2)}) {
    const VerifyResult r = verify(with_grid(run, grid, 1), reference);
    EXPECT_TRUE(r.passes(verify_tolerance(Precision::kBf16)))
        << grid.name() << ": loss " << r.loss_difference << ", gradient " << r.gradient_difference
        << ", tensor " << r.tensor_difference << " at " << r.worst_tensor;
  }
}

/// What the three products leave out is much alike on every grid.
TEST(Grids, ThreeProductsStayNearOneRankOfFp32) {
  if (!kernels::has_tile_product()) GTEST_SKIP() << "needs a CPU with AMX for bf16";
  set_intra_op_threads(1);
  RunSpec run = testing::run_of(testing::tiny_llama(), 12);
  const VerifyReference reference = make_reference(run, kSteps, random_samples(run));
  run.train.precision = Precision::kFp32x3;
  for (const GridShape& grid :
       {GridShape(1, 1, 1, 1), GridShape(3, 2, 1, 1), GridShape(1, 1, 3, 2)}) {
    const VerifyResult r = verify(with_grid(run, grid, 1), reference);
    EXPECT_TRUE(r.passes(verify_tolerance(Precision::kFp32x3)))
        << grid.name() << ": loss " << r.loss_difference << ", gradient " << r.gradient_difference
        << ", tensor " << r.tensor_difference << " at " << r.worst_tensor;
    EXPECT_GT(r.gradient_difference, 3e-7) << "as exact as fp32";
  }
}

/// Matrices are rounded once on their way over z (and large ones over data: data_axis_test.cc).
TEST(Grids, GradientsMayTravelInBf16) {
  set_intra_op_threads(1);
  const RunSpec run = testing::run_of(testing::tiny_llama(), 12);
  const VerifyReference reference = make_reference(run, kSteps, random_samples(run));
  for (const GridShape& grid : {GridShape(1, 1, 2, 1), GridShape(1, 2, 3, 2)}) {
    for (const int zero : {0, 1}) {
      RunSpec rounded = with_grid(run, grid, 2);
      rounded.memory.zero = zero;
      rounded.overlap.grad_dtype = WireType::kBf16;
      const VerifyResult r = verify(rounded, reference);
      EXPECT_GT(r.gradient_difference, 1e-5) << grid.name();
      EXPECT_LT(r.gradient_difference, 4e-3) << grid.name();
    }
  }
}

TEST(Grids, EvaluationCountsEachSampleOnce) {
  set_intra_op_threads(1);
  const RunSpec run = testing::run_of(testing::tiny_gpt(), 12);
  const auto solo = make_solo();
  RankModel one(run, *solo);
  for (const std::int64_t samples : {1, 5, 12, 13}) {
    const double expected = one.evaluate(samples, random_samples(run));
    const RunSpec split = with_grid(run, GridShape(2, 1, 2, 2), 1);
    run_thread_ranks(8, {}, [&](Communicator& world) {
      set_intra_op_threads(1);
      RankModel model(split, world);
      EXPECT_NEAR(model.evaluate(samples, random_samples(run)), expected, 1e-6);
    });
  }
}

TEST(Grids, NonFiniteGradientsStopOrSkipByPolicy) {
  RunSpec run = with_grid(testing::run_of(testing::tiny_gpt(), 4), GridShape(2, 1, 2, 1), 1);
  for (const NonFinite policy : {NonFinite::kStop, NonFinite::kSkip}) {
    run.train.non_finite = policy;
    run_thread_ranks(4, {}, [&](Communicator& world) {
      RankModel model(run, world);
      Parameter& poisoned = *model.model().parameters().back();
      if (world.rank() == 3) poisoned.weight.fill_(std::numeric_limits<float>::quiet_NaN());
      for (const ParameterUnit& unit : model.model().units()) unit.refresh_vectors();
      const at::Tensor before = model.model().parameters().front()->master.clone();
      if (policy == NonFinite::kStop) {
        try {
          model.train_step(0, 0, random_samples(run));
          ADD_FAILURE() << "a NaN went unseen";
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::kNumerics);
          EXPECT_NE(std::string(error.what()).find("step 1"), std::string::npos) << error.what();
        }
      } else {
        EXPECT_TRUE(model.train_step(0, 0, random_samples(run)).skipped);
        EXPECT_EQ(model.updates(), 0);
      }
      EXPECT_TRUE(before.equal(model.model().parameters().front()->master));
    });
  }
}

}  // namespace
}  // namespace fourfold
