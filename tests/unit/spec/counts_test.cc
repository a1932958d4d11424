#include "spec/counts.h"

#include <gtest/gtest.h>

#include "spec/presets.h"
#include "spec/validate.h"

namespace fourfold {
namespace {

std::int64_t parameters(const char* preset) {
  return count_parameters(find_preset(preset).value()).total();
}

TEST(Counts, PublishedModelsToTheParameter) {
  EXPECT_EQ(parameters("gpt2-124m"), 124'439'808);
  EXPECT_EQ(parameters("gpt2-355m"), 354'823'168);
  EXPECT_EQ(parameters("gpt2-774m"), 774'030'080);
  EXPECT_EQ(parameters("gpt2-1.5b"), 1'557'611'200);
  EXPECT_EQ(parameters("tinyllama-1.1b"), 1'100'048'384);
  EXPECT_EQ(parameters("llama-3.2-1b"), 1'235'814'400);
  EXPECT_EQ(parameters("llama-2-7b"), 6'738'415'616);
  EXPECT_EQ(parameters("llama-2-13b"), 13'015'864'320);
  EXPECT_EQ(parameters("llama-3-8b"), 8'030'261'248);
  EXPECT_EQ(parameters("llama-3-70b"), 70'553'706'496);
}

TEST(Counts, PapersColumnToTheDigitsPrinted) {
  const struct {
    const char* preset;
    double billions;
    double digit;  // The last one printed.
  } rows[] = {{"axonn-5b", 4.83, 0.01},   {"axonn-10b", 10.07, 0.01}, {"axonn-20b", 19.73, 0.01},
              {"axonn-40b", 38.73, 0.01}, {"axonn-50b", 48.9, 0.1},   {"axonn-60b", 57.1, 0.1},
              {"axonn-80b", 76.1, 0.1},   {"axonn-100b", 96.0, 0.1},  {"axonn-160b", 152.2, 0.1},
              {"axonn-175b", 173.9, 0.1}, {"axonn-320b", 309, 1},     {"axonn-640b", 618, 1.5}};
  for (const auto& row : rows) {
    EXPECT_NEAR(twelve_lh2(*find_preset(row.preset)) / 1e9, row.billions, row.digit / 2 + 1e-9)
        << row.preset;
  }
}

TEST(Counts, PartsAddUp) {
  const ModelSpec m = *find_preset("gpt-tiny");
  const ParameterCount count = count_parameters(m);
  EXPECT_EQ(count.embedding, 251 * 66);
  EXPECT_EQ(count.positions, 33 * 66);
  EXPECT_EQ(count.final_norm, 2 * 66);
  EXPECT_EQ(count.head, 0);
  // Blocks: q, k, v, o of 66x66, two of 66x250, their biases, two norms.
  EXPECT_EQ(count.layers, 2 * (4 * 66 * 66 + 2 * 66 * 250 + 4 * 66 + 250 + 66 + 4 * 66));
}

TEST(Counts, FlopsOfAToken) {
  ModelSpec m = *find_preset("gpt-tiny");
  m.layers = 1;
  const double weights = 4.0 * 66 * 66 + 2.0 * 66 * 250 + 251.0 * 66;
  // Of 10 tokens' causal attention, half of 2 products of 2·10·66.
  EXPECT_DOUBLE_EQ(model_flops_per_token(m, 10), 3 * (2 * weights + 2 * 10 * 66));
}

// With recompute the forward runs twice: 4/3 of the model's operations, but for the head, which the
// papers count without it (V term), and attention, which they do not halve.
TEST(Counts, PapersFlopsAgreeWithTheModels) {
  const ModelSpec m = *find_preset("axonn-20b");
  const double seq = 2048, hidden = 7168, layers = 32, vocab = 51200;
  const double head = 6 * vocab * hidden;
  const double half_attention = 3 * 2 * seq * hidden * layers;
  const double model = model_flops_per_token(m, 2048);
  const double expected = (model - head + half_attention) * 4 / 3 + head;
  EXPECT_NEAR(paper_flops_per_step(m, 3, 2048) / (3 * seq), expected, expected * 1e-12);
}

TEST(Counts, EveryPresetIsAPossibleModel) {
  for (const std::string& name : preset_names()) {
    RunSpec run;
    run.model = find_preset(name).value();
    run.train.steps = run.train.global_batch = run.train.micro_batch = 1;
    run.train.seq_len = run.model.seq_len;
    const auto problem = check_run(run);
    EXPECT_FALSE(problem) << name << ": " << problem->message;
    EXPECT_EQ(run.model.preset, name);
  }
  const std::int64_t quickstart = parameters("gpt-6m");
  EXPECT_GT(quickstart, 5'000'000);
  EXPECT_LT(quickstart, 8'000'000);
  EXPECT_NEAR(static_cast<double>(parameters("llama-100m")), 100e6, 5e6);
}

}  // namespace
}  // namespace fourfold
