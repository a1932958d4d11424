#include "formats/hf_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace fourfold {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<SafetensorsEntry> tensors() {
  return {{.name = "b", .dtype = "F32", .shape = {2, 3}},
          {.name = "a", .dtype = "F32", .shape = {5}},
          {.name = "empty", .dtype = "F32", .shape = {0}},
          {.name = "c", .dtype = "BF16", .shape = {4}}};
}

std::vector<std::byte> bytes_of(std::size_t tensor) {
  const std::size_t sizes[] = {24, 20, 0, 8};
  return std::vector<std::byte>(sizes[tensor], static_cast<std::byte>(tensor + 1));
}

class HfWeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = ::testing::TempDir() + "/hf_weights_" + info->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  std::vector<std::string> write(std::uint64_t limit) {
    return write_hf_weights(folder_, tensors(), limit, bytes_of);
  }
  void expect_whole() const {
    const auto weights = HfWeights::open(folder_);
    ASSERT_TRUE(weights.ok()) << weights.error().what();
    EXPECT_EQ(weights.value().names().size(), 4u);
    for (std::size_t i = 0; i < tensors().size(); ++i) {
      const SafetensorsEntry wanted = tensors()[i];
      const SafetensorsEntry* found = weights.value().find(wanted.name);
      ASSERT_TRUE(found) << wanted.name;
      EXPECT_EQ(found->shape, wanted.shape);
      std::vector<std::byte> data(found->bytes());
      ASSERT_TRUE(weights.value().read(wanted.name, data).ok());
      EXPECT_EQ(data, bytes_of(i)) << wanted.name;
    }
    EXPECT_EQ(weights.value().find("d"), nullptr);
  }
  std::string error() const {
    const auto weights = HfWeights::open(folder_);
    return weights.ok() ? "accepted" : weights.error().what();
  }
  void replace_index(const std::string& text) const {
    std::ofstream(folder_ + "/model.safetensors.index.json") << text;
  }

  std::string folder_;
};

TEST_F(HfWeightsTest, OneFile) {
  EXPECT_THAT(write(52), ElementsAre("model.safetensors"));
  expect_whole();
}

TEST_F(HfWeightsTest, ShardsTakeTensorsInTheirOrder) {
  EXPECT_THAT(write(44),
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                          "model.safetensors.index.json"));
  expect_whole();
}

TEST_F(HfWeightsTest, ATensorIsNeverCut) {
  EXPECT_EQ(write(1).size(), 5u) << "a file for each, and the index";
  expect_whole();
}

TEST_F(HfWeightsTest, RefusesAFolderThatIsNotWhole) {
  EXPECT_THAT(error(), HasSubstr("has neither model.safetensors nor"));
  write(44);
  std::filesystem::remove(folder_ + "/model-00002-of-00002.safetensors");
  EXPECT_THAT(error(), HasSubstr("model-00002-of-00002.safetensors"));
  EXPECT_THAT(HfWeights::open(folder_ + "/none").error().what(), HasSubstr("is not a folder"));
}

TEST_F(HfWeightsTest, RefusesAnIndexThatCannotBe) {
  write(44);
  const std::string first = "model-00001-of-00002.safetensors";
  replace_index("{");
  EXPECT_THAT(error(), HasSubstr("not a JSON object"));
  replace_index("{}");
  EXPECT_THAT(error(), HasSubstr("has no weight_map"));
  replace_index(R"({"weight_map": {"a": 3}})");
  EXPECT_THAT(error(), HasSubstr("its file is no name"));
  for (const char* outside : {"../x", "/etc/passwd", ".hidden", ""}) {
    replace_index(std::string(R"({"weight_map": {"a": ")") + outside + "\"}}");
    EXPECT_THAT(error(), HasSubstr("outside the folder")) << outside;
  }
  replace_index(R"({"weight_map": {"c": ")" + first + "\"}}");
  EXPECT_THAT(error(), HasSubstr("c is not in " + first));
  std::filesystem::copy_file(folder_ + "/" + first, folder_ + "/model-3.safetensors");
  replace_index(R"({"weight_map": {"a": "model-3.safetensors", "b": ")" + first + "\"}}");
  EXPECT_THAT(error(), HasSubstr("is also in"));
}

}  // namespace
}  // namespace fourfold
