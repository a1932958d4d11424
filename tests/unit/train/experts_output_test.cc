#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/train/test_models.h"
#include "train/dry_run.h"
#include "train/model_text.h"
#include "train/progress.h"
#include "train/router_record.h"
#include "train/run_curves.h"
#include "train/run_output.h"
#include "train/run_report.h"

namespace fourfold {
namespace {

using Json = nlohmann::json;

/// A folder that goes away with the test.
class ExpertsOutput : public ::testing::Test {
 protected:
  ExpertsOutput()
      : dir_(std::filesystem::temp_directory_path() /
             ("fourfold-experts-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(dir_);
    run_ = testing::run_of(*find_preset("llama-moe-tiny"), 8);
    complete_model(run_.model);
    run_.dir = dir_.string();
    run_.parallel.grid = {1, 1, 2, 1};
    run_.parallel.expert = 2;
  }
  ~ExpertsOutput() override { std::filesystem::remove_all(dir_); }

  std::string text_of(const std::string& name) const {
    std::ifstream in(dir_ / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write_metrics(const std::vector<JsonLine>& lines) const {
    std::filesystem::create_directories(dir_);
    JsonLinesFile file((dir_ / "metrics.jsonl").string());
    for (const JsonLine& line : lines) file.write(line);
  }

  std::filesystem::path dir_;
  RunSpec run_;
};

StepRecord step_of(std::int64_t step, bool forced = false) {
  StepRecord r;
  r.step = step;
  r.loss = 3;
  r.step_seconds = 1;
  r.experts = ExpertsRecord{0.0102, 1e-3, 1.31, forced};
  return r;
}

RouterRecord router_of(std::int64_t step, std::int64_t layer, std::vector<std::int64_t> tokens) {
  RouterRecord r;
  r.step = step;
  r.layer = layer;
  r.tokens = std::move(tokens);
  r.max_over_mean = 1.5;
  r.entropy = 0.7;
  return r;
}

TEST(RouterRecord, IsPerTokenAndLeavesOutDenseBlocks) {
  MoeSpec moe;
  moe.experts = 4;
  moe.aux_coef = 0.01;
  moe.z_coef = 0.5;
  std::vector<RouterTally> tally(3);
  tally[1] = {{30, 10, 0, 40}, 8, 20, 4, 60};
  tally[2] = {{20, 20, 20, 20}, 0, 10, 0, 40};
  const auto records = router_records(moe, tally, 7, 40);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].step, 7);
  EXPECT_EQ(records[0].layer, 1);
  EXPECT_EQ(records[0].tokens, (std::vector<std::int64_t>{30, 10, 0, 40}));
  EXPECT_DOUBLE_EQ(records[0].max_over_mean, 2);
  EXPECT_DOUBLE_EQ(records[0].dropped, 0.1);
  EXPECT_DOUBLE_EQ(records[0].entropy, 1.5);
  EXPECT_DOUBLE_EQ(records[0].aux_loss, 0.01 * 4 * 20 / 40);
  EXPECT_DOUBLE_EQ(records[0].z_loss, 0.5 * 4 / 40);
  EXPECT_DOUBLE_EQ(records[1].max_over_mean, 1);
  EXPECT_DOUBLE_EQ(worst_load(records), 2);
  EXPECT_EQ(worst_load({}), 0);
}

TEST(RouterRecord, StepLinesHaveTheRoutersLossesOfExpertsOnly) {
  const Json line = Json::parse(to_json(step_of(3)).text());
  EXPECT_EQ(line["loss"], 3.0);
  EXPECT_EQ(line["aux_loss"], 0.0102);
  EXPECT_EQ(line.value("z_loss", 0.0), 1e-3);
  EXPECT_EQ(line["max_over_mean"], 1.31);
  EXPECT_FALSE(line.contains("forced_balance"));
  EXPECT_EQ(Json::parse(to_json(step_of(3, true)).text())["forced_balance"], true);
  StepRecord dense = step_of(3);
  dense.experts.reset();
  for (const char* key : {"aux_loss", "z_loss", "max_over_mean", "forced_balance"}) {
    EXPECT_FALSE(Json::parse(to_json(dense).text()).contains(key)) << key;
  }
}

TEST_F(ExpertsOutput, ALineAndScalarsForEachRouter) {
  RunFolder folder(run_);
  {
    RunOutput output(folder, {10, 1, /*json=*/false}, /*tensorboard=*/true);
    ::testing::internal::CaptureStdout();
    output.step(step_of(3));
    output.routers({router_of(3, 0, {4, 0, 2}), router_of(3, 1, {2, 2, 2})}, /*forced=*/false);
    output.routers({router_of(4, 1, {1, 1, 4})}, /*forced=*/true);
    EXPECT_EQ(::testing::internal::GetCapturedStdout().find("router"), std::string::npos);
  }
  std::istringstream text(text_of("metrics.jsonl"));
  std::vector<Json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1]["step"], 3);
  EXPECT_EQ(lines[1]["router"], 0);
  EXPECT_EQ(lines[1]["tokens_per_expert"], (std::vector<int>{4, 0, 2}));
  for (const char* key : {"max_over_mean", "entropy", "dropped", "aux_loss", "z_loss"}) {
    EXPECT_TRUE(lines[1].contains(key)) << key;
  }
  EXPECT_FALSE(lines[2].contains("forced_balance"));
  EXPECT_EQ(lines[3]["forced_balance"], true);
  std::string events;
  for (const auto& file : std::filesystem::directory_iterator(dir_ / "tb")) {
    events += text_of("tb/" + file.path().filename().string());
  }
  for (const char* tag : {"train/aux_loss", "train/z_loss", "router/0/max_over_mean",
                          "router/1/entropy", "router/1/dropped"}) {
    EXPECT_NE(events.find(tag), std::string::npos) << tag;
  }
}

TEST(ProgressLine, ShowsTheRoutersLossAndTheWorstLoad) {
  const auto printed = [](const StepRecord& record) {
    ::testing::internal::CaptureStdout();
    Progress progress({10, 1, /*json=*/false});  // Looks whether stdout is a terminal.
    progress.step(record);
    return ::testing::internal::GetCapturedStdout();
  };
  EXPECT_NE(printed(step_of(3)).find("loss 3.0000  aux 0.0102  load 1.31  grad"), std::string::npos)
      << printed(step_of(3));
  EXPECT_NE(printed(step_of(3, true)).find("load 1.31 (forced balance)"), std::string::npos);
  StepRecord dense = step_of(3);
  dense.experts.reset();
  EXPECT_EQ(printed(dense).find("load"), std::string::npos);
}

TEST_F(ExpertsOutput, TheModelIsTold) {
  EXPECT_EQ(experts_text(run_), "experts 6, top 3, 1 shared, on 2 ranks");
  const std::string parameters = parameters_text(run_.model);
  EXPECT_NE(parameters.find("244,296 parameters ("), std::string::npos) << parameters;
  EXPECT_NE(describe_run(run_).find("# experts 6, top 3"), std::string::npos);
  run_.model.moe.balance = Balance::kForced;
  run_.parallel.expert = 1;
  EXPECT_NE(experts_text(run_).find("on 1 rank; balance is forced"), std::string::npos);
  EXPECT_EQ(experts_text(testing::run_of(testing::tiny_gpt(), 2)), "");
  EXPECT_EQ(parameters_text(testing::tiny_gpt()).find("active"), std::string::npos);
}

TEST_F(ExpertsOutput, CurvesForgetTheRoutersOfStepsTrainedAgain) {
  write_metrics({to_json(step_of(1)), to_json(router_of(1, 0, {4, 2}), false), to_json(step_of(2)),
                 to_json(router_of(2, 0, {5, 1}), false), to_json(step_of(3)),
                 to_json(router_of(3, 0, {6, 0}), false), to_json(step_of(2)),
                 to_json(router_of(2, 0, {3, 3}), false)});
  const RunCurves curves = read_curves(run_.dir + "/metrics.jsonl");
  EXPECT_EQ(curves.restarts, (std::vector<double>{1}));
  EXPECT_EQ(curves.steps.size(), 2u);
  EXPECT_TRUE(curves.validations.empty());
  const auto& routers = curves.routers.at(0);
  ASSERT_EQ(routers.size(), 2u);
  EXPECT_EQ(routers.at(1).tokens, (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(routers.at(2).tokens, (std::vector<std::int64_t>{3, 3}));
  EXPECT_EQ(routers.at(2).max_over_mean, 1.5);
  EXPECT_EQ(routers.at(2).entropy, 0.7);
}

TEST_F(ExpertsOutput, TheReportHasASectionOfExperts) {
  std::vector<JsonLine> lines;
  for (int step = 1; step <= 5; ++step) {
    lines.push_back(to_json(step_of(step)));
    lines.push_back(to_json(router_of(step, 0, {6, 6, 6, 6, 6, 6}), false));
    lines.push_back(to_json(router_of(step, 1, {9, 6, 6, 6, 6, 3}), false));
  }
  write_metrics(lines);
  write_run_report(run_);
  std::string html = text_of("report.html");
  for (const char* part :
       {"<h2>Experts</h2>", "layer 0", "layer 1", "<td>0 (1.50)</td><td>5 (0.50)</td>",
        "active parameters", "<dd>6, top 3</dd>", "Entropy of the router"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(html.find("Dropped"), std::string::npos);
  EXPECT_EQ(html.find("Balance is forced"), std::string::npos);

  run_.model.moe.balance = Balance::kForced;
  RouterRecord full = router_of(6, 1, {9, 6, 6, 6, 6, 3});
  full.dropped = 0.25;
  write_metrics({to_json(full, true)});
  write_run_report(run_);
  html = text_of("report.html");
  EXPECT_NE(html.find("<dd>forced: speed only</dd>"), std::string::npos);
  EXPECT_NE(html.find("Balance is forced"), std::string::npos);
  EXPECT_NE(html.find("<td>25.00\u00a0%</td>"), std::string::npos);
  EXPECT_NE(html.find("Dropped"), std::string::npos);
}

}  // namespace
}  // namespace fourfold
