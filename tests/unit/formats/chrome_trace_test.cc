#include "formats/chrome_trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace fourfold {
namespace {

using Kind = TimelineSpan::Kind;

std::string path_of(const char* name) {
  return (std::filesystem::temp_directory_path() / name).string();
}

TEST(ChromeTrace, IsReadBack) {
  const std::string path = path_of("fourfold-chrome-trace.json");
  const std::vector<TimelineSpan> spans = {
      {"main", "forward of \"block 0\"", Kind::kCompute, 100.5, 100.75, 0},
      {"gather z", "all_gather z", Kind::kCommunicate, 100.6, 100.7, 4096},
      {"main", "all_gather z", Kind::kWait, 100.65, 100.7, 0},
      {"persist", "write", Kind::kCheckpoint, 100.5, 101.5, 0},
      {"main", "step 3", Kind::kStep, 100.5, 102, 0}};
  write_chrome_trace(path, 3, 100, spans);
  const auto read = read_chrome_trace(path).value();
  ASSERT_EQ(read.size(), spans.size());
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(read[i].track, spans[i].track);
    EXPECT_EQ(read[i].name, spans[i].name);
    EXPECT_EQ(read[i].kind, spans[i].kind);
    EXPECT_EQ(read[i].bytes, spans[i].bytes);
    EXPECT_NEAR(read[i].begin, spans[i].begin - 100, 1e-9);
    EXPECT_NEAR(read[i].end, spans[i].end - 100, 1e-9);
  }
  std::filesystem::remove(path);
}

TEST(ChromeTrace, HasWhatViewersWant) {
  const std::string path = path_of("fourfold-chrome-trace-2.json");
  write_chrome_trace(path, 7, 1, {{"reduce x", "all_reduce x", Kind::kCommunicate, 1.5, 2, 8}});
  std::ifstream file(path);
  const auto events = nlohmann::json::parse(file).at("traceEvents");
  ASSERT_EQ(events.size(), 4U);  // The rank, the main thread and the lane by name; the span.
  EXPECT_EQ(events[0]["args"]["name"], "rank 7");
  const auto& event = events[3];
  EXPECT_EQ(event["ph"], "X");
  EXPECT_EQ(event["pid"], 7);
  EXPECT_NE(event["tid"], 0);
  EXPECT_DOUBLE_EQ(event["ts"], 0.5e6);
  EXPECT_DOUBLE_EQ(event["dur"], 0.5e6);
  std::filesystem::remove(path);
}

TEST(ChromeTrace, RefusesOtherFiles) {
  const std::string path = path_of("fourfold-chrome-trace-3.json");
  EXPECT_FALSE(read_chrome_trace(path));
  for (const char* text :
       {"", "{}", "{\"traceEvents\":[{\"ph\":\"X\"}]}", "{\"traceEvents\":[3]}"}) {
    std::ofstream(path) << text;
    const auto read = read_chrome_trace(path);
    ASSERT_FALSE(read) << text;
    EXPECT_NE(std::string(read.error().what()).find(path), std::string::npos);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace fourfold
