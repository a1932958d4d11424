#include "plan/recompute_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "plan/memory_model.h"
#include "spec/presets.h"

namespace fourfold {
namespace {

using testing::Each;
using testing::HasSubstr;

RunSpec run_of(const char* family, int layers, int every = 0) {
  RunSpec run;
  run.model = *family_defaults(family);
  run.model.layers = layers;
  run.model.hidden = 96;
  run.model.heads = 6;
  run.model.vocab = 301;
  run.model.seq_len = 70;
  if (every > 0) {
    run.model.moe.experts = 4;
    run.model.moe.top_k = 2;
    run.model.moe.ffn = 130;
    run.model.moe.every = every;
  }
  complete_model(run.model);
  run.train.seq_len = run.model.seq_len;
  run.train.global_batch = run.train.micro_batch = 8;
  return run;
}

RunSpec with_blocks(RunSpec run, const std::vector<Recompute>& blocks) {
  run.memory.recompute = Recompute::kBudget;
  run.memory.by_block = blocks;
  return run;
}
std::int64_t peak(const RunSpec& run, const std::vector<Recompute>& blocks) {
  return predict_memory(with_blocks(run, blocks)).peak().total();
}
double work(const RunSpec& run, const std::vector<Recompute>& blocks) {
  double sum = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    sum += recompute_work(run, static_cast<int>(i), blocks[i]);
  }
  return sum;
}

// Every choice for a run of few blocks.
std::vector<std::vector<Recompute>> all_choices(int layers) {
  std::vector<std::vector<Recompute>> all{{}};
  for (int i = 0; i < layers; ++i) {
    std::vector<std::vector<Recompute>> longer;
    for (const auto& begun : all) {
      for (const Recompute r :
           {Recompute::kNone, Recompute::kAttention, Recompute::kMlp, Recompute::kFull}) {
        longer.push_back(begun);
        longer.back().push_back(r);
      }
    }
    all = std::move(longer);
  }
  return all;
}

// For budgets from the least that any choice takes to what none takes: it fits, what any choice of
// all fits, at not much more work than the best of all, and no block's recompute is for nothing.
TEST(RecomputeChoice, FitsWhateverFitsAtLittleMoreThanTheLeastWork) {
  for (const auto& [family, every] : {std::pair{"gpt", 0}, {"llama", 0}, {"llama", 2}}) {
    RunSpec run = run_of(family, 4, every);
    const auto choices = all_choices(4);
    std::vector<std::int64_t> peaks;
    for (const auto& blocks : choices) peaks.push_back(peak(run, blocks));
    const auto [least, most] = std::minmax_element(peaks.begin(), peaks.end());
    for (int i = 0; i <= 10; ++i) {
      run.memory.budget = *least + (*most - *least) * i / 10;
      SCOPED_TRACE(testing::Message() << family << " " << every << ", " << run.memory.budget);
      const std::vector<Recompute> chosen = choose_recompute(run).value();
      EXPECT_LE(peak(run, chosen), run.memory.budget);
      double best = std::numeric_limits<double>::infinity();
      for (std::size_t c = 0; c < choices.size(); ++c) {
        if (peaks[c] <= run.memory.budget) best = std::min(best, work(run, choices[c]));
      }
      EXPECT_LE(work(run, chosen), 1.25 * best);
      for (std::size_t block = 0; block < chosen.size(); ++block) {
        std::vector<Recompute> less = chosen;
        less[block] = Recompute::kNone;
        if (less == chosen) continue;
        EXPECT_GT(peak(run, less), run.memory.budget) << block;
      }
    }
  }
}

TEST(RecomputeChoice, OfAmpleMemoryIsNothing) {
  RunSpec run = run_of("gpt", 3);
  run.memory.budget = std::int64_t{1} << 40;
  EXPECT_THAT(choose_recompute(run).value(), Each(Recompute::kNone));
}

TEST(RecomputeChoice, TooSmallABudgetSaysWhatItTakes) {
  RunSpec run = run_of("gpt", 3);
  run.memory.budget = 1000;
  const auto refused = choose_recompute(run);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().what(), HasSubstr("memory.budget"));
  EXPECT_THAT(refused.error().what(), HasSubstr("at the least"));
}

// A deep model takes no longer than a glance.
TEST(RecomputeChoice, OfManyBlocksTakesTheFirst) {
  RunSpec run = run_of("llama", 60);
  const auto all = [&](Recompute r) { return peak(run, std::vector<Recompute>(60, r)); };
  run.memory.budget = (all(Recompute::kNone) + all(Recompute::kFull)) / 2;
  const auto chosen = choose_recompute(run).value();
  EXPECT_NE(chosen.front(), Recompute::kNone);
  EXPECT_EQ(chosen.back(), Recompute::kNone);
}

}  // namespace
}  // namespace fourfold
