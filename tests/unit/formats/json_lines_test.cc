#include "formats/json_lines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "formats/data_info.h"

namespace fourfold {
namespace {

std::string temp(const std::string& name) {
  const std::string path = testing::TempDir() + "/json_lines_" + name;
  std::filesystem::remove(path);
  return path;
}

std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(JsonLine, KeepsFullPrecisionAndOrder) {
  JsonLine line;
  line.add("step", 3).add("loss", 0.1 + 0.2).add("bad", std::nan("")).add("a\"b", "c\n\xff");
  line.add("on", true).add("big", std::int64_t{1} << 62);
  line.add("none", std::vector<std::int64_t>{}).add("list", std::vector<std::int64_t>{3, -1});
  EXPECT_EQ(line.text(),
            "{\"step\": 3, \"loss\": 0.30000000000000004, \"bad\": null, \"a\\\"b\": "
            "\"c\\n\uFFFD\", \"on\": true, \"big\": 4611686018427387904, "
            "\"none\": [], \"list\": [3, -1]}");
}

TEST(JsonLinesFile, GrowsAndClosesABrokenLine) {
  const std::string path = temp("grow");
  {
    JsonLinesFile(path).write(JsonLine().add("step", 1).add("loss", 2.5));
  }
  EXPECT_EQ(file_text(path), "{\"step\": 1, \"loss\": 2.5}\n");
  std::ofstream(path, std::ios::app) << "{\"step\": 2, \"lo";
  {
    const std::vector<std::int64_t> tokens{5, 0, 7};
    JsonLinesFile(path).write(JsonLine().add("step", 2).add("name", "x").add("tokens", tokens));
  }
  const auto lines = read_number_lines(path).value();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].numbers.at("loss"), 2.5);
  EXPECT_TRUE(lines[0].lists.empty());
  EXPECT_EQ(lines[1].numbers.at("step"), 2);
  EXPECT_EQ(lines[1].numbers.size(), 1u);
  EXPECT_EQ(lines[1].lists.at("tokens"), (std::vector<double>{5, 0, 7}));
  EXPECT_FALSE(read_number_lines("/nonexistent").ok());
  EXPECT_THROW(JsonLinesFile("/nonexistent/x"), Error);
}

TEST(JsonStringMember, SaysWhatIsWrong) {
  EXPECT_EQ(json_string_member(R"({"text": "a\u00e9"})", "text").value(), "a\u00e9");
  EXPECT_STREQ(json_string_member("{", "text").error().what(), "not valid JSON");
  EXPECT_STREQ(json_string_member("[]", "text").error().what(), "not a JSON object");
  EXPECT_STREQ(json_string_member(R"({"text": 1})", "text").error().what(),
               "no string member 'text'");
}

TEST(DataInfo, ReadsBackWhatItWrote) {
  const std::string prefix = temp("info");
  EXPECT_FALSE(read_data_info(prefix).value().has_value());
  write_data_info(prefix, {.tokenizer_fingerprint = "00ff",
                           .vocab_size = 300,
                           .end_of_text = 299,
                           .max_token = 298,
                           .tokens = 5,
                           .documents = 2,
                           .text_bytes = 17});
  const DataInfo info = *read_data_info(prefix).value();
  EXPECT_EQ(info.tokenizer_fingerprint, "00ff");
  EXPECT_EQ(info.vocab_size, 300);
  EXPECT_EQ(info.end_of_text, 299);
  EXPECT_EQ(info.max_token, 298);
  EXPECT_EQ(info.tokens, 5);
  EXPECT_EQ(info.documents, 2);
  EXPECT_EQ(info.text_bytes, 17);
  for (const char* bad : {"", "{}", "[1]", R"({"format": "fourfold-data-1"})"}) {
    std::ofstream(prefix + ".json") << bad;
    EXPECT_FALSE(read_data_info(prefix).ok()) << bad;
  }
  std::filesystem::remove(prefix + ".json");
}

}  // namespace
}  // namespace fourfold
