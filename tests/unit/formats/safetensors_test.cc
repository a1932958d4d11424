#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace fourfold {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (unsigned char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += {kDigits[c >> 4], kDigits[c & 15]};
  }
  return out;
}

std::string error_of(std::string_view json, std::uint64_t data_bytes) {
  const auto header = parse_safetensors_header(json, 8 + json.size() + data_bytes, "f");
  return header.ok() ? "accepted" : header.error().what();
}

TEST(Safetensors, WritesTheReferenceBytes) {
  std::vector<SafetensorsEntry> tensors{{.name = "a", .dtype = "F32", .shape = {2}}};
  const std::string header = build_safetensors_header(tensors, {{"format", "pt"}});
  EXPECT_EQ(header.size(), 96u);
  EXPECT_EQ(hex(header.substr(0, 8)), "5800000000000000");
  EXPECT_EQ(header.substr(8), R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],)"
                              R"("data_offsets":[0,8]}}   )");
  EXPECT_EQ(tensors[0].bytes(), 8u);
}

TEST(Safetensors, ReadsBackWhatItWrote) {
  const std::string path = testing::TempDir() + "/read_back.safetensors";
  const float a[6] = {1, -2, 3, 4, 5, 6};
  const std::uint8_t b[3] = {7, 8, 9};
  write_safetensors_file(path,
                         {{.name = "odd \"name\"\n", .dtype = "U8", .shape = {3}},
                          {.name = "scalar", .dtype = "F32", .shape = {}},
                          {.name = "empty", .dtype = "I64", .shape = {4, 0}},
                          {.name = "m", .dtype = "F32", .shape = {2, 3}}},
                         {b, a, nullptr, a}, {{"crc", "00ff"}, {"format", "pt"}});
  const auto opened = SafetensorsFile::open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().what();
  const auto& file = opened.value();
  EXPECT_EQ(file.header().metadata.at("crc"), "00ff");
  EXPECT_EQ(file.header().tensors.size(), 4u);
  EXPECT_EQ(file.header().data_start % 8, 0u);
  EXPECT_EQ(file.header().file_bytes(), std::filesystem::file_size(path));
  ASSERT_NE(file.header().find("odd \"name\"\n"), nullptr);
  const auto* m = file.header().find("m");
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->shape, (std::vector<std::int64_t>{2, 3}));
  float read[6] = {};
  ASSERT_TRUE(file.read(*m, read).ok());
  EXPECT_EQ(std::memcmp(read, a, sizeof a), 0);
  EXPECT_EQ(file.header().find("none"), nullptr);
}

TEST(Safetensors, SortsFilesOfAnyOrder) {
  const std::string json = R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]},)"
                           R"("a":{"shape":[1],"data_offsets":[0,1],"dtype":"I8"}}  )";
  const auto header = parse_safetensors_header(json, 8 + json.size() + 3, "f");
  ASSERT_TRUE(header.ok()) << header.error().what();
  EXPECT_EQ(header.value().tensors[0].name, "a");
  EXPECT_EQ(header.value().tensors[1].begin, 1u);
}

TEST(Safetensors, RefusesWithTheTensorsName) {
  const struct {
    std::string json;
    std::uint64_t data;
    std::string_view cause;
  } kCases[] = {
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "tensor 'w' is there twice"},
      {R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
       "tensor 'w': member 'dtype' is there twice"},
      {R"({"w":{"dtype":"X9","shape":[1],"data_offsets":[0,1]}})", 1,
       "tensor 'w': unknown dtype 'X9'"},
      {R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 1,
       "tensor 'w': data_offsets [0, 1) do not hold the 2 bytes of U8 [2]"},
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "data_offsets [1, 0)"},
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1, "tensor 'w': the number 2"},
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "not two numbers"},
      {R"({"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "tensor 'w': the negative"},
      {R"({"w":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1, "the number 1.5"},
      {R"({"w":{"dtype":"U8","shape":"x","data_offsets":[0,1]}})", 1, "tensor 'w': a string"},
      {R"({"w":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,1]}})", 1,
       "tensor 'w': its shape overflows"},
      {R"({"w":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1,
       "tensor 'w': its shape overflows"},
      {R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "12 bits are no whole"},
      {R"({"w":{"dtype":"U8","shape":[1]}})", 1, "data_offsets are missing"},
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":1}})", 1, "unknown member"},
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "bytes of no tensor"},
      {R"({"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("w":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "tensor 'w': begins at byte 1 of the data where 2 was expected (tensors overlap)"},
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2, "the file has 2"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__: the number 1"},
      {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "metadata 'a' is there twice"},
      {R"({"w":[]})", 0, "tensor 'w': an array"},
      {R"([])", 0, "does not begin with '{'"},
      {R"({"w)", 0, "not valid JSON at byte"},
      {R"({} x)", 0, "not valid JSON at byte"},
      {"{\"\xff\":{}}", 0, "not valid JSON at byte"},
  };
  for (const auto& c : kCases) {
    EXPECT_NE(error_of(c.json, c.data).find(c.cause), std::string::npos)
        << c.json << "\n  gave: " << error_of(c.json, c.data) << "\n  not:  " << c.cause;
  }
}

TEST(Safetensors, DeepNestingIsAnErrorNotACrash) {
  EXPECT_NE(error_of("{\"a\":" + std::string(1'000'000, '['), 0), "accepted");
}

TEST(Safetensors, RefusesLengthsBeyondTheFile) {
  const auto length_error = [](std::uint64_t n, std::uint64_t size) -> std::string {
    std::byte first[8];
    std::memcpy(first, &n, 8);
    const auto length = parse_safetensors_length(first, size, "f");
    return length.ok() ? "accepted" : length.error().what();
  };
  EXPECT_EQ(length_error(92, 100), "accepted");
  EXPECT_NE(length_error(93, 100), "accepted");
  EXPECT_NE(length_error(UINT64_MAX, 100), "accepted");
  EXPECT_NE(length_error(100'000'001, 1'000'000'000), "accepted");
  EXPECT_NE(length_error(0, 7), "accepted");
}

TEST(Safetensors, FileErrorsNameTheFile) {
  const auto missing = SafetensorsFile::open("/nonexistent/x.safetensors");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().kind(), ErrorKind::kData);
  EXPECT_NE(std::string(missing.error().what()).find("/nonexistent/x.safetensors"),
            std::string::npos);
  const std::string path = testing::TempDir() + "/cut.safetensors";
  const float a[2] = {1, 2};
  write_safetensors_file(path, {{.name = "a", .dtype = "F32", .shape = {2}}}, {a}, {});
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  const auto cut = SafetensorsFile::open(path);
  ASSERT_FALSE(cut.ok());
  EXPECT_NE(std::string(cut.error().what()).find("the file has 7"), std::string::npos);
}

TEST(Safetensors, BuildRefusesWhatNoReaderTakes) {
  std::vector<SafetensorsEntry> twice{{.name = "a", .dtype = "U8", .shape = {1}},
                                      {.name = "a", .dtype = "U8", .shape = {1}}};
  EXPECT_THROW(build_safetensors_header(twice, {}), Error);
  std::vector<SafetensorsEntry> bytes{{.name = "\xff", .dtype = "U8", .shape = {1}}};
  EXPECT_THROW(build_safetensors_header(bytes, {}), Error);
  std::vector<SafetensorsEntry> dtype{{.name = "a", .dtype = "f32", .shape = {1}}};
  EXPECT_THROW(build_safetensors_header(dtype, {}), Error);
}

}  // namespace
}  // namespace fourfold
