// What the memory model predicts against what the allocator counts, on one rank alone: the process
// holds nothing else.
#include "plan/memory_model.h"

#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "comm/thread_world.h"
#include "device/caching_allocator.h"
#include "device/intra_op_threads.h"
#include "kernels/tile_product.h"
#include "plan/recompute_choice.h"
#include "tests/train/test_models.h"
#include "train/rank_model.h"

namespace fourfold {
namespace {

ModelSpec middle(const char* family) {
  ModelSpec m = *family_defaults(family);
  m.layers = 4;
  m.hidden = 192;
  m.heads = 6;
  m.kv_heads = m.family == "llama" ? 3 : 6;
  m.ffn = 500;
  m.seq_len = 128;
  m.vocab = 3001;
  m.dropout = m.family == "gpt" ? 0.1 : 0;
  complete_model(m);
  return m;
}

void fill(std::int64_t sample, std::int64_t* inputs, std::int64_t* targets) {
  for (int i = 0; i < 128; ++i) inputs[i] = targets[i] = (sample * 31 + i) % 3001;
}

struct Measured {
  std::int64_t state = 0, peak = 0;
};

Measured measure(const RunSpec& run) {
  Measured m;
  const std::int64_t before = allocator_stats().in_use;
  const auto world = make_solo();
  RankModel model(run, *world);
  m.state = allocator_stats().in_use - before;
  model.train_step(0, 0, fill);
  reset_allocator_peak();
  model.train_step(1, run.train.global_batch, fill);
  m.peak = allocator_stats().peak_in_use - before;
  return m;
}

void expect_within(std::int64_t predicted, std::int64_t measured, double share, const char* what) {
  EXPECT_NEAR(static_cast<double>(predicted), static_cast<double>(measured),
              share * static_cast<double>(measured))
      << what;
}

class Memory : public ::testing::Test {
 protected:
  void SetUp() override {
    install_caching_allocator();
    set_intra_op_threads(1);
    if (allocator_stats().system_allocations == 0) {
      const auto probe = make_solo();
      RankModel model(testing::run_of(testing::tiny_gpt(), 1), *probe);
    }
    if (allocator_stats().system_allocations == 0) GTEST_SKIP() << "no allocator that counts";
  }
};

void check(const ModelSpec& model, Precision precision, Recompute recompute, std::int64_t batch) {
  RunSpec run = testing::run_of(model, batch);
  run.train.precision = precision;
  run.memory.recompute = recompute;
  SCOPED_TRACE(::testing::Message()
               << model.family << ", precision " << static_cast<int>(precision) << ", recompute "
               << static_cast<int>(recompute) << ", " << batch << " samples");
  const Measured measured = measure(run);
  const MemoryParts peak = predict_memory(run).peak();
  expect_within(peak.state(), measured.state, 0.02, "state");
  expect_within(peak.total(), measured.peak, 0.05, "peak");
  expect_within(peak.total() - peak.state(), measured.peak - measured.state, 0.1,
                "activations and working memory");
}

TEST_F(Memory, PeakIsPredicted) {
  for (const char* family : {"gpt", "llama"}) {
    for (const Recompute recompute :
         {Recompute::kNone, Recompute::kAttention, Recompute::kMlp, Recompute::kFull}) {
      for (const std::int64_t batch : {2, 8}) {
        check(middle(family), Precision::kFp32, recompute, batch);
      }
    }
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      check(middle(family), Precision::kBf16, recompute, 2);
    }
  }
  if (kernels::has_tile_product()) {
    for (const std::int64_t batch : {2, 8}) {
      check(middle("llama"), Precision::kFp32x3, Recompute::kNone, batch);
    }
  }
  ModelSpec normed = middle("llama");
  for (const QkNorm norm : {QkNorm::kHead, QkNorm::kWhole}) {
    normed.qk_norm = norm;
    for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
      check(normed, Precision::kFp32, recompute, 8);
    }
  }
}

// What the planner promises, the run keeps.
TEST_F(Memory, StaysWithinTheBudget) {
  RunSpec run = testing::run_of(middle("llama"), 8);
  const std::int64_t most = predict_memory(run).peak().total();
  run.memory.recompute = Recompute::kFull;
  run.memory.budget = (most + predict_memory(run).peak().total()) / 2;
  run.memory.recompute = Recompute::kBudget;
  resolve_recompute(run);
  const std::int64_t predicted = predict_memory(run).peak().total();
  EXPECT_LE(predicted, run.memory.budget);
  expect_within(predicted, measure(run).peak, 0.05, "peak");
}

ModelSpec with_experts(ModelSpec m) {
  m.layers = 3;
  m.moe.experts = 6;
  m.moe.top_k = 2;
  m.moe.ffn = 300;
  m.moe.balance = Balance::kForced;  // The even load that is predicted.
  m.moe.shared_experts = m.gated() ? 1 : 0;
  complete_model(m);
  return m;
}

TEST_F(Memory, PeakWithExpertsIsPredicted) {
  for (const char* family : {"gpt", "llama"}) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kMlp, Recompute::kFull}) {
      for (const int every : {1, 2}) {
        RunSpec run = testing::run_of(with_experts(middle(family)), 8);
        run.model.moe.every = every;
        run.memory.recompute = recompute;
        SCOPED_TRACE(::testing::Message() << family << ", recompute " << static_cast<int>(recompute)
                                          << ", experts in every " << every << " blocks");
        const Measured measured = measure(run);
        const MemoryParts peak = predict_memory(run).peak();
        expect_within(peak.state(), measured.state, 0.02, "state");
        expect_within(peak.total(), measured.peak, 0.05, "peak");
        expect_within(peak.total() - peak.state(), measured.peak - measured.state, 0.1,
                      "activations and working memory");
      }
    }
  }
}

/// All tokens go to the experts of one of two ranks: neither holds more than is said of the worst.
TEST_F(Memory, TheWorstLoadStaysWithinWhatIsSaid) {
  RunSpec run = testing::run_of(with_experts(middle("llama")), 8);
  run.parallel.grid = GridShape(1, 1, 2, 1);
  run.parallel.expert = 2;
  run.train.micro_batch = 4;
  run.model.moe.balance = Balance::kLossFree;
  run.model.moe.bias_rate = 0;
  std::int64_t peak = 0;
  const std::int64_t before = allocator_stats().in_use;
  run_thread_ranks(2, {}, [&](Communicator& world) {
    set_intra_op_threads(1);
    RankModel model(run, world);
    std::vector<RouterMemory> memory = model.routers().memory();
    for (RouterMemory& router : memory) router.bias[0] = router.bias[1] = 10;  // Of rank 0.
    model.routers().set_memory(std::move(memory));
    model.train_step(0, 0, fill);
    EXPECT_EQ(model.routers().tally()[0].tokens[0], 8 * 128);
    world.barrier().wait_host();
    if (world.rank() == 0) reset_allocator_peak();
    world.barrier().wait_host();
    model.train_step(1, run.train.global_batch, fill);
    world.barrier().wait_host();
    if (world.rank() == 0) peak = allocator_stats().peak_in_use - before;
  });
  const std::int64_t worst = predict_memory(run, {}, ExpertLoad::kWorst).peak().total();
  const std::int64_t even = predict_memory(run, {0, 0, 1, 0}).peak().total();
  // The other rank, whose experts get nothing, holds less than with an even load.
  EXPECT_LT(peak, worst + even);
  EXPECT_GT(peak, worst);
}

/// The peak of one of ranks that hold the same and go in step: its part of what the process holds.
std::int64_t peak_of_each(const RunSpec& run) {
  std::int64_t peak = 0;
  const std::int64_t before = allocator_stats().in_use;
  const int ranks = run.parallel.grid.size();
  run_thread_ranks(ranks, {}, [&](Communicator& world) {
    set_intra_op_threads(1);
    RankModel model(run, world);
    model.train_step(0, 0, fill);
    world.barrier().wait_host();
    if (world.rank() == 0) reset_allocator_peak();
    world.barrier().wait_host();
    model.train_step(1, run.train.global_batch, fill);
    world.barrier().wait_host();
    if (world.rank() == 0) peak = allocator_stats().peak_in_use - before;
  });
  return peak / ranks;
}

struct Stream {
  bool is_cut, regather;
};

TEST_F(Memory, PeakOverXIsPredicted) {
  for (const char* family : {"gpt", "llama"}) {
    for (const bool with_moe : {false, true}) {
      for (const Stream& stream : {Stream{false, true}, Stream{true, true}, Stream{true, false}}) {
        for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
          const ModelSpec model = middle(family);
          RunSpec run = testing::run_of(with_moe ? with_experts(model) : model, 8);
          run.parallel.grid = GridShape(model.kv_heads == 3 ? 3 : 2, 1, 1, 1);
          run.memory.recompute = recompute;
          run.overlap.sequence_parallel = stream.is_cut;
          run.overlap.sp_regather = stream.regather;
          SCOPED_TRACE(::testing::Message() << family << ", experts " << with_moe << ", cut "
                                            << stream.is_cut << ", regather " << stream.regather
                                            << ", recompute " << static_cast<int>(recompute));
          // Experts' ranks are seldom in step.
          const double share = with_moe ? 0.05 : 0.01;
          expect_within(predict_memory(run).peak().total(), peak_of_each(run), share, "peak");
        }
      }
    }
  }
}

TEST_F(Memory, PeakOverZIsPredicted) {
  for (const int cached : {0, 2}) {
    for (const int depth : {1, 3}) {
      RunSpec run = testing::run_of(middle("llama"), 4);
      run.parallel.grid = GridShape(1, 1, 2, 1);
      run.train.micro_batch = 2;
      run.overlap.cache_layers = cached;
      run.overlap.prefetch_depth = depth;
      SCOPED_TRACE(::testing::Message() << cached << " layers cached, depth " << depth);
      expect_within(predict_memory(run).peak().total(), peak_of_each(run), 0.05, "peak");
    }
  }
}

}  // namespace
}  // namespace fourfold
