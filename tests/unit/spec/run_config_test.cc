#include "spec/run_config.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "spec/config_key.h"

namespace fourfold {
namespace {

using testing::HasSubstr;

constexpr const char* kRun = R"([run]
seed = 7
[model]
family = "gpt"
layers = 2
hidden = 64
heads = 4
seq_len = 32
vocab = 251
[parallel]
x = 2
z = 2
[train]
steps = 30
global_batch = 8
micro_batch = 2
precision = "bf16"
[optimizer]
lr = 1e-3
betas = [0.8, 0.99]
[schedule]
name = "wsd"
warmup = 3
)";

RunSpec parsed(std::vector<std::string> overrides = {}) {
  return parse_run(kRun, "run.toml", overrides).value();
}

// "cause | hint" of a run that must be refused.
std::string refusal(const std::string& text, std::vector<std::string> overrides = {}) {
  const auto run = parse_run(text, "run.toml", overrides);
  if (run) return "accepted";
  EXPECT_EQ(run.error().kind(), ErrorKind::kUsage);
  EXPECT_EQ(std::string(run.error().what()).find('\n'), std::string::npos);
  EXPECT_FALSE(run.error().hint().empty()) << run.error().what();
  return std::string(run.error().what()) + " | " + run.error().hint();
}

TEST(RunConfig, ReadsEveryKindOfValue) {
  const RunSpec run = parsed();
  EXPECT_EQ(run.seed, 7u);
  EXPECT_EQ(run.dir, "runs/run");
  EXPECT_EQ(run.model.layers, 2);
  EXPECT_EQ(run.parallel.grid, GridShape(2, 1, 2, 1));
  EXPECT_EQ(run.train.precision, Precision::kBf16);
  EXPECT_DOUBLE_EQ(run.optimizer.lr, 1e-3);
  EXPECT_EQ(run.optimizer.betas, (std::array<double, 2>{0.8, 0.99}));
  EXPECT_EQ(run.schedule.kind, ScheduleKind::kWsd);
  EXPECT_EQ(run.accumulation(), 2);
}

TEST(RunConfig, CompletesWhatFollowsFromOtherValues) {
  const RunSpec run = parsed();
  EXPECT_EQ(run.model.kv_heads, 4);
  EXPECT_EQ(run.model.head_dim, 16);
  EXPECT_EQ(run.model.ffn, 256);
  EXPECT_EQ(run.train.seq_len, 32);
  const RunSpec llama = parsed({"model.family=llama", "model.kv_heads=2"});
  EXPECT_EQ(llama.model.ffn, 192);  // 8/3 · 64 = 170.7, up to a multiple of 64.
  EXPECT_EQ(llama.model.norm, Norm::kRmsNorm);
  EXPECT_FALSE(llama.model.tie_embeddings);
  EXPECT_FALSE(llama.model.bias);
}

TEST(RunConfig, LaterOverridesWin) {
  const RunSpec run = parsed({"train.steps=40", "train.steps=50", "model.family = llama"});
  EXPECT_EQ(run.train.steps, 50);
  EXPECT_EQ(run.model.family, "llama");
  EXPECT_EQ(run.origins.at("train.steps"), "--set train.steps=50");
  EXPECT_EQ(run.origins.at("model.layers"), "run.toml:5");
}

TEST(RunConfig, WholeNumbersTakeUnits) {
  EXPECT_EQ(parsed({"train.steps=2k"}).train.steps, 2000);
  EXPECT_EQ(parsed({"train.steps=1e3"}).train.steps, 1000);
  EXPECT_EQ(parsed({"train.steps=\"1KiB\""}).train.steps, 1024);
  EXPECT_THAT(refusal(kRun, {"train.steps=1.5"}), HasSubstr("must be a whole number"));
}

TEST(RunConfig, TokensStandForSteps) {
  EXPECT_EQ(parsed({"train.tokens=2561"}).train.steps, 11);  // 256 tokens a step, rounded up.
  EXPECT_EQ(parsed({"train.tokens=2561", "train.steps=3"}).train.steps, 3);
  std::string both = kRun;
  both.replace(both.find("steps = 30"), 10, "steps = 30\ntokens = 2560");
  EXPECT_THAT(refusal(both), HasSubstr("are 10 steps, but train.steps is 30"));
}

TEST(RunConfig, PresetsAreChangedByKeys) {
  const std::string train = "[train]\nsteps=1\nglobal_batch=1\nmicro_batch=1\n";
  const RunSpec run =
      parse_run("[model]\npreset = \"gpt2-124m\"\nlayers = 3\ndropout = 0.1\n" + train, "a.toml")
          .value();
  EXPECT_EQ(run.model.layers, 3);
  EXPECT_EQ(run.model.vocab, 50257);
  EXPECT_EQ(run.model.head_dim, 64);
  const RunSpec wide = parse_run("[model]\npreset=\"llama-3-8b\"\nheads=16\n" + train, "a").value();
  EXPECT_EQ(wide.model.kv_heads, 16);  // Follows from heads, not from the preset's 32 and 8.
  EXPECT_EQ(wide.model.head_dim, 256);
  EXPECT_THAT(refusal("[model]\npreset = \"gpt-124m\"\n"), HasSubstr("did you mean \"gpt2-124m\""));
  EXPECT_THAT(refusal("[model]\npreset = \"gpt2-124m\"\nfamily = \"llama\"\n"),
              HasSubstr("run.toml:3: preset gpt2-124m is of family gpt"));
}

TEST(RunConfig, NamesUnknownKeysWithPlaceAndSuggestion) {
  EXPECT_THAT(refusal("[train]\nsteps = 3\nglobal_bacth = 4\n"),
              testing::StartsWith("run.toml:3: unknown key train.global_bacth | did you mean "
                                  "train.global_batch? [train] knows steps, tokens"));
  EXPECT_THAT(refusal("[train]\nlr = 0.1\n"), HasSubstr("did you mean optimizer.lr?"));
  EXPECT_THAT(refusal("[trian]\nsteps = 3\n"), HasSubstr("did you mean [train]?"));
  EXPECT_THAT(refusal("[zzzzzzz]\n"), HasSubstr("the tables are [run] [model]"));
  EXPECT_THAT(refusal("[train.steps]\n"), HasSubstr("not a table"));
  EXPECT_THAT(refusal("train = 3\n"), HasSubstr("run.toml:1: unknown key train"));
  EXPECT_THAT(refusal(kRun, {"train.step=3"}), HasSubstr("--set train.step=3: unknown key"));
  EXPECT_THAT(refusal(kRun, {"steps"}), HasSubstr("no 'key=value'"));
}

TEST(RunConfig, SaysWhatWasExpected) {
  EXPECT_THAT(refusal("[train]\nsteps = \"many\"\n"),
              HasSubstr("run.toml:2: train.steps must be a whole number of at least 0 (steps), "
                        "not the string \"many\""));
  EXPECT_THAT(refusal("[optimizer]\nlr = \"big\"\n"), HasSubstr("must be a number of at least 0"));
  EXPECT_THAT(refusal("[optimizer]\nlr = nan\n"), HasSubstr("must be a number"));
  EXPECT_THAT(refusal("[optimizer]\nbetas = [0.9]\n"), HasSubstr("a list of 2 numbers"));
  EXPECT_THAT(refusal("[optimizer]\nbetas = [0.9, 1.5]\n"), HasSubstr("a list of 2 numbers"));
  EXPECT_THAT(refusal("[model]\ntie_embeddings = 1\n"), HasSubstr("must be true or false"));
  EXPECT_THAT(refusal("[model]\nhidden = -5\n"), HasSubstr("from 1 to 1000000"));
  EXPECT_THAT(refusal("[model]\nhidden = 99999999999999\n"), HasSubstr("from 1 to 1000000"));
  EXPECT_THAT(refusal("[model]\nfamily = \"lama\"\n"), HasSubstr("did you mean \"llama\"?"));
  EXPECT_THAT(refusal("[train]\nsteps = [1]\n"), HasSubstr("not a list"));
  EXPECT_THAT(refusal("[train]\nsteps = 1979-05-27\n"), HasSubstr("not a date"));
  EXPECT_THAT(refusal("[train\nsteps = 3\n"), HasSubstr("run.toml:1: not TOML"));
  EXPECT_THAT(refusal("[run]\nseed = 1\nseed = 2\n"), HasSubstr("run.toml:3: not TOML"));
}

TEST(RunConfig, RefusesWhatIsNotBuiltYet) {
  const std::vector<std::string> sets{"parallel.plan=auto",
                                      "checkpoint.mode=pec",
                                      "checkpoint.pec.k_persist=1",
                                      "fault.max_restarts=10",
                                      "checkpoint.pec.scope=[\"master\"]",
                                      "overlap.attention_over_y=true",
                                      "checkpoint.pec.budget=0.1"};
  for (const std::string& set : sets) {
    EXPECT_THAT(refusal(kRun, {set}), HasSubstr("is not built yet | leave the key out")) << set;
  }
  EXPECT_EQ(refusal(kRun, {"parallel.plan=manual", "overlap.keep_collectives=false",
                           "checkpoint.pec.scope=[]", "overlap.grad_dtype=fp32"}),
            "accepted");
}

TEST(RunConfig, ABudgetAndItsRecomputeBelongTogether) {
  EXPECT_EQ(refusal(kRun, {"memory.recompute=budget", "memory.budget=3GiB"}), "accepted");
  EXPECT_THAT(refusal(kRun, {"memory.recompute=budget"}), HasSubstr("needs memory.budget"));
  EXPECT_THAT(refusal(kRun, {"memory.budget=3GiB"}), HasSubstr("does nothing without"));
}

TEST(RunConfig, GradientsTravelInTypesOfTheWireAlone) {
  EXPECT_EQ(refusal(kRun, {"overlap.grad_dtype=bf16", "train.precision=fp32x3"}), "accepted");
  EXPECT_THAT(refusal(kRun, {"overlap.grad_dtype=fp32x3"}), HasSubstr("one of \"fp32\", \"bf16\""));
}

TEST(RunConfig, ChecksTheGridOnceItIsKnown) {
  EXPECT_THAT(refusal(kRun, {"parallel.x=3"}),
              HasSubstr("--set parallel.x=3: 4 heads cannot be cut over x = 3 | parallel.x can be "
                        "1, 2, 4"));
  EXPECT_THAT(refusal(kRun, {"train.global_batch=10"}), HasSubstr("nearest: 8 or 12"));
  RunSpec run = parsed({"parallel.data=-1", "train.global_batch=12"});
  const Status odd = resolve_grid(run, 6);
  ASSERT_FALSE(odd);
  EXPECT_THAT(odd.error().hint(), HasSubstr("multiple of 4"));
  EXPECT_TRUE(resolve_grid(run, 12).ok());
  EXPECT_EQ(run.parallel.grid.data, 3);
  EXPECT_EQ(run.accumulation(), 1);
  RunSpec open = parsed({"parallel.data=-1", "train.global_batch=12"});
  const Status heavy = resolve_grid(open, 8);
  ASSERT_FALSE(heavy);
  EXPECT_THAT(heavy.error().what(), HasSubstr("micro_batch·z·data = 2·2·2 = 8"));
  EXPECT_THAT(refusal(kRun, {"parallel.x=-1", "parallel.y=-1"}), HasSubstr("more than one"));
  EXPECT_THAT(refusal(kRun, {"parallel.y=0"}), HasSubstr("at least 1"));
}

TEST(RunConfig, ChecksExpertRanksOnceTheGridIsKnown) {
  const std::vector<std::string> sets{"model.moe.experts=8", "parallel.expert=4"};
  EXPECT_THAT(refusal(kRun, sets),
              HasSubstr("--set parallel.expert=4: parallel.expert = 4 neither divides z = 2 nor is "
                        "a multiple of it that divides z·data = 2 | on this grid parallel.expert "
                        "can be 1, 2"));
  RunSpec open = parsed({sets[0], sets[1], "parallel.data=-1"});
  EXPECT_FALSE(resolve_grid(open, 4));
  open = parsed({sets[0], sets[1], "parallel.data=-1"});
  EXPECT_TRUE(resolve_grid(open, 8).ok());
}

TEST(RunConfig, RefusesAnotherNumberOfRanks) {
  RunSpec run = parsed();
  EXPECT_TRUE(resolve_grid(run, 0).ok());
  EXPECT_TRUE(resolve_grid(run, 4).ok());
  const Status more = resolve_grid(run, 6);
  ASSERT_FALSE(more);
  EXPECT_STREQ(more.error().what(), "x·y·z·data = 2·1·2·1 is 4 ranks, but 6 were started");
}

TEST(RunConfig, PrintsItselfAndReadsItBack) {
  const RunSpec run = parsed({"data.train=a\"b\\c", "optimizer.lr=0.0003", "run.dir=r"});
  const std::string text = resolved_toml(run);
  EXPECT_THAT(text, HasSubstr("lr = 0.0003  # default: 0.0006\n"));
  EXPECT_THAT(text, HasSubstr("\nclip_grad = 1.0\n"));
  const RunSpec again = parse_run(text, "config.toml").value();
  EXPECT_EQ(resolved_toml(again), text);
  EXPECT_EQ(again.model, run.model);
  EXPECT_EQ(again.data.train, "a\"b\\c");
}

TEST(RunConfig, ExpertsAreAsWideAsTheMlpUnlessGiven) {
  EXPECT_EQ(parsed().model.moe, MoeSpec());
  EXPECT_EQ(parsed({"model.moe.experts=8"}).model.moe.ffn, 256);
  EXPECT_EQ(parsed({"model.moe.experts=8", "model.ffn=100"}).model.moe.ffn, 100);
  EXPECT_EQ(parsed({"model.moe.experts=8", "model.moe.ffn=30"}).model.moe.ffn, 30);
  EXPECT_EQ(parsed({"model.moe.experts=8", "model.moe.ffn=30"}).model.ffn, 256);
}

TEST(RunConfig, APresetsExpertsAreChangedByKeys) {
  const auto moe = [](const std::string& preset, const std::string& keys) {
    const std::string train = "[train]\nsteps=1\nglobal_batch=1\nmicro_batch=1\n";
    const std::string text = fmt::format("[model]\npreset = \"{}\"\n{}\n{}", preset, keys, train);
    const RunSpec run = parse_run(text, "a.toml").value();
    const std::string resolved = resolved_toml(run);
    EXPECT_EQ(parse_run(resolved, "a.toml").value().model, run.model) << resolved;
    return run.model.moe;
  };
  EXPECT_EQ(moe("gpt-125m-8e", "").ffn, 3072);
  EXPECT_EQ(moe("gpt-125m-8e", "moe.top_k = 2").top_k, 2);
  EXPECT_EQ(moe("gpt-125m-8e", "ffn = 100").ffn, 100);
  EXPECT_EQ(moe("gpt-125m-8e", "hidden = 600").ffn, 2400);
  EXPECT_EQ(moe("qwen3-moe-small", "ffn = 100").ffn, 192);  // Of its own, whatever the MLP's.
  EXPECT_EQ(moe("llama-moe-tiny", "moe.experts = 0"), MoeSpec());
}

TEST(RunConfig, ExpertsAreReadBack) {
  const RunSpec run = parsed({"run.dir=r",
                              "model.moe.experts=6",
                              "model.moe.top_k=3",
                              "model.moe.ffn=40",
                              "model.moe.first_dense=1",
                              "model.moe.shared_experts=2",
                              "model.moe.shared_gate=true",
                              "model.moe.capacity_factor=1.25",
                              "model.moe.drop_order=score",
                              "model.moe.score=sigmoid",
                              "model.moe.renormalise=false",
                              "model.moe.balance=loss_free",
                              "model.moe.aux_coef=0.02",
                              "model.moe.z_coef=1e-3",
                              "model.moe.bias_rate=0.01",
                              "model.moe.jitter=0.1",
                              "parallel.expert=2",
                              "parallel.expert_placement=interleaved",
                              "parallel.drop_duplicates=false",
                              "parallel.expert_chunks=3"});
  EXPECT_EQ(run.model.moe.drop_order, DropOrder::kScore);
  EXPECT_EQ(run.model.moe.balance, Balance::kLossFree);
  EXPECT_EQ(run.parallel.expert_placement, ExpertPlacement::kInterleaved);
  const std::string text = resolved_toml(run);
  EXPECT_THAT(text, HasSubstr("\n[model.moe]\nexperts = 6  # default: 0\n"));
  const RunSpec again = parse_run(text, "config.toml").value();
  EXPECT_EQ(again.model, run.model);
  EXPECT_EQ(resolved_toml(again), text);
}

// A dense model's table says so, and nothing in it calls for attention.
TEST(RunConfig, ADenseModelsExpertsAreTheDefaults) {
  const std::string text = resolved_toml(parsed());
  const std::size_t begin = text.find("[model.moe]\nexperts = 0\n");
  ASSERT_NE(begin, std::string::npos);
  const std::string table = text.substr(begin, text.find("\n\n", begin) - begin);
  EXPECT_EQ(table.find('#'), std::string::npos) << table;
}

TEST(RunConfig, RefusesImpossibleExperts) {
  EXPECT_THAT(refusal(kRun, {"model.moe.experts=-1"}), HasSubstr("from 0 to 100000"));
  EXPECT_THAT(refusal(kRun, {"model.moe.top_k=0"}), HasSubstr("from 1 to 100000"));
  EXPECT_THAT(refusal(kRun, {"model.moe.every=0"}), HasSubstr("from 1 to 10000"));
  EXPECT_THAT(refusal(kRun, {"model.moe.jitter=1"}), HasSubstr("from 0 to 0.999"));
  EXPECT_THAT(refusal(kRun, {"model.moe.score=softmx"}), HasSubstr("did you mean \"softmax\"?"));
  EXPECT_THAT(refusal(kRun, {"parallel.expert=0"}), HasSubstr("from 1 to 1000000 (ranks)"));
  EXPECT_THAT(refusal(kRun, {"parallel.expert_chunks=0"}), HasSubstr("at least 1"));
}

// Every built key reaches a field of its own, and reading gives what was written.
TEST(RunConfig, KeysReachTheirFields) {
  for (const ConfigKey& key : config_keys()) {
    if (!key.built) continue;
    RunSpec run;
    ConfigValue value = key.get(run);
    if (auto* flag = std::get_if<bool>(&value)) *flag = !*flag;
    if (auto* whole = std::get_if<std::int64_t>(&value)) *whole += 1;
    if (auto* real = std::get_if<double>(&value)) *real += 0.5;
    if (auto* list = std::get_if<std::vector<double>>(&value)) (*list)[1] = 0.125;
    if (auto* text = std::get_if<std::string>(&value)) {
      *text = key.text.choices.empty() ? "other" : key.text.choices.back();
    }
    key.set(run, value);
    EXPECT_EQ(key.get(run), value) << key.path;
    for (const ConfigKey& other : config_keys()) {
      if (other.path == key.path) continue;
      EXPECT_EQ(other.get(run), other.get(RunSpec{})) << other.path;
    }
  }
}

TEST(RunConfig, AMissingRunFileIsAUsageError) {
  const auto missing = load_run("no/such/file.toml");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().exit_code(), 2);
  EXPECT_FALSE(load_run("/"));
  const auto path = std::filesystem::temp_directory_path() / "fourfold_run_config_test.toml";
  std::ofstream(path) << kRun;
  const auto run = load_run(path.string());
  std::filesystem::remove(path);
  ASSERT_TRUE(run);
  EXPECT_EQ(run.value().dir, "runs/fourfold_run_config_test");
}

}  // namespace
}  // namespace fourfold
