#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/train/test_models.h"
#include "train/run_folder.h"
#include "train/signals.h"
#include "train/step_record.h"

namespace fourfold {
namespace {

TEST(StepRecord, JsonKeepsEveryBit) {
  StepRecord r;
  r.step = 12;
  r.loss = 0.1 + 0.2;
  r.grad_norm = 1.0 / 3;
  const auto line = nlohmann::json::parse(to_json(r).text());
  EXPECT_EQ(line["loss"].get<double>(), 0.1 + 0.2);
  EXPECT_EQ(line["grad_norm"].get<double>(), 1.0 / 3);
  for (const char* key : {"step", "lr", "tokens", "tokens_per_second", "step_seconds", "mfu"}) {
    EXPECT_TRUE(line.contains(key)) << key;
  }
  EXPECT_FALSE(line.contains("skipped"));
  EXPECT_EQ(nlohmann::json::parse(to_json(ValidationRecord{7, 2.5, 90}).text())["val_loss"], 2.5);
}

TEST(RunFolder, AppendsAcrossRestarts) {
  const auto dir =
      std::filesystem::temp_directory_path() / ("fourfold-run-" + std::to_string(::getpid()));
  std::filesystem::remove_all(dir);
  RunSpec run = testing::run_of(testing::tiny_gpt(), 2);
  run.dir = (dir / "deep/er").string();
  for (int start = 0; start < 2; ++start) {
    RunFolder(run).append_metrics(JsonLine().add("start", start));
  }
  std::ifstream file(run.dir + "/metrics.jsonl");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(text, "{\"start\": 0}\n{\"start\": 1}\n");
  EXPECT_TRUE(std::filesystem::exists(run.dir + "/config.toml"));
  std::filesystem::remove_all(dir);
}

TEST(RunFolder, ThatCannotBeMadeIsAnErrorWithAHint) {
  RunSpec run = testing::run_of(testing::tiny_gpt(), 2);
  run.dir = "/proc/nowhere";
  try {
    RunFolder folder(run);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_FALSE(error.hint().empty());
  }
}

TEST(SignalWatch, FirstSignalAsksToStopSecondEnds) {
  EXPECT_EXIT(
      {
        const SignalWatch watch;
        ::kill(::getpid(), SIGTERM);
        while (watch.received() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (watch.received() != SIGTERM) ::_exit(1);
        ::kill(::getpid(), SIGINT);
        std::this_thread::sleep_for(std::chrono::seconds(10));
      },
      ::testing::ExitedWithCode(128 + SIGINT), "");
}

}  // namespace
}  // namespace fourfold
