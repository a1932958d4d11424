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
  // Less than published by the norms of queries and keys.
  EXPECT_EQ(parameters("olmoe-1b-7b"), 6'919'161'856);
}

// Attention 4h²+4h, MLP or expert 8h²+5h, two norms 4h; the router h·N without bias.
TEST(Counts, CheckpointPapersModels) {
  const ParameterCount small = count_parameters(*find_preset("gpt-125m-8e"));
  EXPECT_EQ(small.experts, 226'676'736);
  EXPECT_EQ(small.total() - small.experts, 96'178'176);
  EXPECT_EQ(small.total(), 322'854'912);
  EXPECT_EQ(small.active(), 96'178'176 + 226'676'736 / 8);
  const ParameterCount large = count_parameters(*find_preset("gpt-350m-16e"));
  EXPECT_EQ(large.experts, 1'611'595'776);
  EXPECT_EQ(large.total() - large.experts, 255'391'744);
  EXPECT_EQ(large.total(), 1'866'987'520);
  EXPECT_EQ(large.active(), 255'391'744 + 1'611'595'776 / 16);
}

TEST(Counts, SharedExpertsAreOneMlp) {
  ModelSpec m = *find_preset("llama-moe-tiny");
  const ParameterCount count = count_parameters(m);
  const std::int64_t expert = 3 * 72 * 58;
  EXPECT_EQ(count.experts, 2 * 6 * expert);
  EXPECT_EQ(count.idle_experts, 2 * 3 * expert);
  // Blocks: q, o of 72x72, k, v of 36x72, experts, a shared one, its gate, the router, two norms.
  const std::int64_t block = 2 * 72 * 72 + 2 * 36 * 72 + 6 * expert + expert + 72 + 6 * 72 + 2 * 72;
  EXPECT_EQ(count.layers, 2 * block);
  m.moe.shared_experts = 3;
  m.moe.shared_gate = false;
  EXPECT_EQ(count_parameters(m).layers, 2 * (block + 2 * expert - 72));
  m.bias = true;  // Of each expert and of the shared ones together.
  const std::int64_t bias = 72 + 2 * 36 + 72 + 6 * (2 * 58 + 72) + (2 * 3 * 58 + 72);
  EXPECT_EQ(count_parameters(m).layers, 2 * (block + 2 * expert - 72 + bias));
}

TEST(Counts, DenseLayersAmongThoseWithExperts) {
  ModelSpec m = *find_preset("gpt-moe-tiny");
  m.layers = 5;
  m.moe.ffn = 30;
  m.moe.every = 2;
  m.moe.first_dense = 2;  // Of blocks 1 and 3, the latter.
  const std::int64_t expert = 2 * 66 * 30 + 30 + 66, mlp = 2 * 66 * 250 + 250 + 66;
  const ParameterCount count = count_parameters(m);
  EXPECT_EQ(count.experts, 5 * expert);
  EXPECT_EQ(count.layers, 5 * (4 * 66 * 66 + 4 * 66 + 4 * 66) + 4 * mlp + 5 * expert + 5 * 66);
}

TEST(Counts, DenseModelsUseAllTheirParameters) {
  const ParameterCount count = count_parameters(*find_preset("gpt2-124m"));
  EXPECT_EQ(count.experts, 0);
  EXPECT_EQ(count.active(), 124'439'808);
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

TEST(Counts, FlopsOfATokenAreThoseOfItsExperts) {
  ModelSpec m = *find_preset("llama-moe-tiny");
  const auto products = [&] { return model_flops_per_token(m, 0) / 6; };
  const double expert = 3.0 * 72 * 58;
  // Experts: 3 of 6, the shared one; its gate and the router.
  const double block = 2.0 * 72 * 72 + 2.0 * 36 * 72 + 4 * expert + 72 + 6 * 72;
  EXPECT_DOUBLE_EQ(products(), 2 * block + 253.0 * 72);
  m.moe.top_k = 1;
  EXPECT_DOUBLE_EQ(products(), 2 * (block - 2 * expert) + 253.0 * 72);
  m.moe.first_dense = 1;
  const double dense = 2.0 * 72 * 72 + 2.0 * 36 * 72 + 3.0 * 72 * 170;
  EXPECT_DOUBLE_EQ(products(), block - 2 * expert + dense + 253.0 * 72);
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
  const auto active = [](const char* preset) {
    return static_cast<double>(count_parameters(find_preset(preset).value()).active());
  };
  EXPECT_NEAR(active("moe-6m"), static_cast<double>(quickstart), 0.02e6);
  EXPECT_NEAR(active("mixtral-small"), 125e6, 25e6);
  EXPECT_NEAR(active("olmoe-1b-7b"), 1.28e9, 0.01e9);
}

}  // namespace
}  // namespace fourfold
