#include "ckpt/manifest.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "ckpt/file_names.h"
#include "tests/crash/state_fixture.h"

namespace fourfold {
namespace {

using testing::HasSubstr;

Manifest small_manifest() {
  Manifest m;
  m.id = {Step(200), 1};
  m.meta = test_meta(200, GridShape(2, 1, 3, 1), 1);
  m.meta.config_toml.clear();
  m.files = {{"rank-00000.dense.safetensors", 1234, 0x01020304, 0xfffefdfc},
             {"config.toml", 17, 0, 5}};
  m.tensors = {{"embed.weight", "master", DType::kF32, TensorClass::kDense, {50257, 768}},
               {"tokens", "counter", DType::kI64, TensorClass::kState, {}}};
  return m;
}

/// A text with the body changed and the checksum made right again: what a hostile writer does.
std::string resealed(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  const auto tail = text.rfind(",\n\"crc32c\"");
  text.resize(tail);
  return text + fmt::format(",\n\"crc32c\":\"{:08x}\"}}\n", crc32c(text.data(), text.size()));
}

TEST(Manifest, KeepsEverything) {
  const Manifest m = small_manifest();
  const auto read = parse_manifest(manifest_text(m));
  ASSERT_TRUE(read) << read.error().what();
  const Manifest& r = read.value();
  EXPECT_EQ(r.id, m.id);
  EXPECT_EQ(r.meta.step, m.id.step);
  EXPECT_EQ(r.meta.seed, m.meta.seed);
  EXPECT_EQ(r.meta.grid, m.meta.grid);
  EXPECT_EQ(r.meta.zero, 1);
  EXPECT_EQ(r.meta.scalars, m.meta.scalars);
  EXPECT_EQ(r.meta.next_sample, m.meta.next_sample);
  EXPECT_EQ(r.meta.run_id, "run-1");
  EXPECT_EQ(r.meta.model_hash, "abc");
  ASSERT_EQ(r.files.size(), 2u);
  EXPECT_EQ(r.files[0].name, m.files[0].name);
  EXPECT_EQ(r.files[0].size, 1234);
  EXPECT_EQ(r.files[0].file_crc, 0xfffefdfcu);
  ASSERT_EQ(r.tensors.size(), 2u);
  EXPECT_EQ(r.tensors[0].shape, m.tensors[0].shape);
  EXPECT_EQ(r.tensors[1].dtype, DType::kI64);
  EXPECT_EQ(r.tensors[1].cls, TensorClass::kState);
  EXPECT_EQ(manifest_text(r), manifest_text(m));
}

TEST(Manifest, EveryFlippedBitAndEveryCutIsSeen) {
  const std::string text = manifest_text(small_manifest());
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_FALSE(parse_manifest(text.substr(0, i))) << i;
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      EXPECT_FALSE(parse_manifest(damaged)) << i;
    }
  }
}

TEST(Manifest, PassesOverMembersThatItDoesNotKnow) {
  const auto text =
      resealed(manifest_text(small_manifest()), "\"step\"", "\"later\":[{}],\"step\"");
  EXPECT_TRUE(parse_manifest(text));
}

TEST(Manifest, RefusesWhatCannotBe) {
  const std::string text = manifest_text(small_manifest());
  const auto cause = [&](const std::string& from, const std::string& to) -> std::string {
    const auto read = parse_manifest(resealed(text, from, to));
    return read ? "accepted" : read.error().what();
  };
  EXPECT_THAT(cause("\"version\":1", "\"version\":3"), HasSubstr("version 3"));
  EXPECT_THAT(cause("\"version\":1", "\"version\":2"), HasSubstr("another format version"));
  EXPECT_THAT(cause("fourfold checkpoint", "something else"), HasSubstr("another program"));
  EXPECT_THAT(cause("config.toml", "../../x"), HasSubstr("leaves the folder"));
  EXPECT_THAT(cause("config.toml", "rank-00000.dense.safetensors"), HasSubstr("named twice"));
  EXPECT_THAT(cause("50257", "9223372036854775807"), HasSubstr("no size"));
  EXPECT_THAT(cause("50257,768", "4000000000,4000000000"), HasSubstr("overflows"));
  EXPECT_THAT(cause("50257", "-5"), HasSubstr("no size"));
  EXPECT_THAT(cause("50257", "1e300"), HasSubstr("no size"));
  EXPECT_THAT(cause("[50257,768]", "5"), HasSubstr("no short list"));
  EXPECT_THAT(cause("\"F32\"", "\"F31\""), HasSubstr("unknown dtype"));
  EXPECT_THAT(cause("\"size\":1234", "\"size\":-1"), HasSubstr("no size"));
  EXPECT_THAT(cause("[2,1,3,1]", "[2,0,3,1]"), HasSubstr("grid"));
  EXPECT_THAT(cause("[2,1,3,1]", "[65536,65536,65536,1]"), HasSubstr("grid"));
  EXPECT_THAT(cause("\"yxzd\"", "\"yyzd\""), HasSubstr("order"));
  EXPECT_THAT(cause("01020304", "0102030x"), HasSubstr("hexadecimal"));
  EXPECT_THAT(cause("\"files\":[", "\"files\":[" + std::string(100, '[')), HasSubstr("deep"));
  EXPECT_THAT(cause("\"incarnation\":1", "\"incarnation\":2147483647"), HasSubstr("incarnation"));
  EXPECT_THAT(cause("\"tensors\"", "\"tonsors\""), HasSubstr("tensors"));
  EXPECT_THAT(cause("\"tokens\",\"shape\"", "3,\"shape\""), HasSubstr("string"));
}

/// One whose experts lie in itself and in two older checkpoints of other grids.
Manifest referring_manifest() {
  Manifest m = small_manifest();
  m.files.push_back({"rank-00003.expert.safetensors", 99, 1, 2});
  const CheckpointId old{Step(100), 0}, older_return{Step(100), 1};
  m.tensors.push_back({"e.0", "master", DType::kF32, TensorClass::kExpert, {3}, m.id});
  m.tensors.push_back({"e.1", "master", DType::kF32, TensorClass::kExpert, {3}, older_return});
  m.tensors.push_back({"e.2", "master", DType::kF32, TensorClass::kExpert, {3}, old});
  m.tensors.push_back({"e.2", "exp_avg", DType::kF32, TensorClass::kExpert, {3}, old});
  m.referred = {
      {old,
       GridShape(2, 1, 1, 2),
       "xyzd",
       0,
       {{"rank-00001.expert.safetensors", 5, 6, 7}, {"rank-00003.expert.safetensors", 8, 9, 10}}},
      {older_return, GridShape(), "yxzd", 1, {{"rank-00000.expert.safetensors", 1, 2, 3}}}};
  return m;
}

TEST(Manifest, KeepsReferences) {
  const Manifest m = referring_manifest();
  const std::string text = manifest_text(m);
  EXPECT_THAT(text, HasSubstr("\"version\":2,"));
  const auto read = parse_manifest(text);
  ASSERT_TRUE(read) << read.error().what();
  const Manifest& r = read.value();
  ASSERT_EQ(r.referred.size(), 2u);
  EXPECT_EQ(r.referred[0].id, m.referred[0].id);
  EXPECT_EQ(r.referred[0].grid, m.referred[0].grid);
  EXPECT_EQ(r.referred[0].order, "xyzd");
  EXPECT_EQ(r.referred[0].files[1].name, "rank-00003.expert.safetensors");
  EXPECT_EQ(r.referred[0].files[1].file_crc, 10u);
  EXPECT_EQ(r.referred[1].zero, 1);
  EXPECT_FALSE(r.tensors[0].version);
  EXPECT_EQ(r.tensors[2].version, m.id);
  EXPECT_EQ(r.tensors[3].version, m.tensors[3].version);
  EXPECT_EQ(manifest_text(r), text);
}

TEST(Manifest, IsOfTheOldestVersionThatCanSayIt) {
  EXPECT_THAT(manifest_text(small_manifest()), HasSubstr("\"version\":1,"));
  Manifest own = referring_manifest();
  own.tensors.resize(3);
  own.referred.clear();
  EXPECT_THAT(manifest_text(own), HasSubstr("\"version\":2,")) << "its expert file may be needed";
}

TEST(Manifest, RefusesReferencesThatCannotBe) {
  const std::string text = manifest_text(referring_manifest());
  const auto cause = [&](const std::string& from, const std::string& to) -> std::string {
    const auto read = parse_manifest(resealed(text, from, to));
    return read ? "accepted" : read.error().what();
  };
  const std::string first = "{\"checkpoint\":\"step-00000100\"";
  const std::string second = "{\"checkpoint\":\"step-00000100.1\"";
  ASSERT_NE(text.find(first), text.npos);
  EXPECT_THAT(cause(second, "{\"checkpoint\":\"step-00000200.1\""), HasSubstr("not older"));
  EXPECT_THAT(cause(second, "{\"checkpoint\":\"step-00000200.2\""), HasSubstr("not older"));
  EXPECT_THAT(cause(second, "{\"checkpoint\":\"step-00000300\""), HasSubstr("not older"));
  EXPECT_THAT(cause(second, first), HasSubstr("twice"));
  EXPECT_THAT(cause(first, "{\"checkpoint\":\"step-00000150\""), HasSubstr("out of order"));
  EXPECT_THAT(cause(first, "{\"checkpoint\":\"../x\""), HasSubstr("no checkpoint"));
  EXPECT_THAT(cause(first, "{\"checkpoint\":\"step-00000100.1/..\""), HasSubstr("no checkpoint"));
  EXPECT_THAT(cause(first, "{\"checkpoint\":\"step-00000099\""), HasSubstr("nothing is said"));
  EXPECT_THAT(cause("\"version\":\"step-00000100.1\"", "\"version\":\"step-00000100\""),
              HasSubstr("for nothing"));
  EXPECT_THAT(cause("\"version\":\"step-00000100\"", "\"version\":\"step-00000300\""),
              HasSubstr("nothing is said"));
  EXPECT_THAT(cause("\"version\":\"step-00000100\"", "\"version\":5"), HasSubstr("string"));
  EXPECT_THAT(cause("\"version\":2", "\"version\":1"), HasSubstr("another format version"));
  EXPECT_THAT(cause("rank-00001.expert", "rank-00001.dense"), HasSubstr("expert file"));
  EXPECT_THAT(cause("rank-00001.expert", "../../../etc/x"), HasSubstr("leaves the folder"));
  EXPECT_THAT(cause("rank-00001.expert", "rank-1.expert"), HasSubstr("expert file"));
  EXPECT_THAT(cause("rank-00001.expert", "rank-00003.expert"), HasSubstr("expert file"));
  EXPECT_THAT(cause("\"grid\":[2,1,1,2]", "\"grid\":[2,1,1,1]"), HasSubstr("expert file"));
  EXPECT_THAT(cause("\"grid\":[2,1,1,2]", "\"grid\":[65536,65536,1,2]"), HasSubstr("grid"));
  EXPECT_THAT(cause("\"xyzd\"", "\"xyz\""), HasSubstr("order"));
  EXPECT_THAT(cause("\"class\":\"expert\"", "\"class\":\"dense\""), HasSubstr("no expert"));
  EXPECT_THAT(cause("\"referred\":[", "\"referred\":[5,"), HasSubstr("type_error"));
}

TEST(Manifest, ReferencesThatCannotBeAreNotWritten) {
  Manifest m = referring_manifest();
  m.referred[1].id = m.id;
  EXPECT_THROW(manifest_text(m), Error);
}

TEST(FileNames, AreReadBack) {
  for (const int rank : {0, 7, 99999, 123456}) {
    EXPECT_EQ(rank_of_file(dense_file_name(rank)), rank);
    EXPECT_EQ(rank_of_file(expert_file_name(rank)), rank);
    EXPECT_TRUE(is_expert_file(expert_file_name(rank)));
    EXPECT_FALSE(is_expert_file(dense_file_name(rank)));
  }
  for (const char* name :
       {"rank-00000.expert.safetensors.tmp", "rank-0.expert.safetensors", "config.toml", "rank-",
        "rank--0001.expert.safetensors", "rank-99999999999.expert.safetensors", ""}) {
    EXPECT_FALSE(rank_of_file(name)) << name;
  }
}

TEST(Current, NamesACheckpoint) {
  const CheckpointId id{Step(200), 0};
  EXPECT_EQ(current_text(id).substr(0, 14), "step-00000200 ");
  EXPECT_EQ(parse_current(current_text(id)).value(), id);
  const std::string text = current_text(id);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(parse_current(damaged)) << i;
    EXPECT_FALSE(parse_current(text.substr(0, i))) << i;
  }
}

TEST(CheckpointId, FoldersAreReadBack) {
  for (const CheckpointId id : {CheckpointId{Step(0), 0}, {Step(123456789012), 0}, {Step(7), 3}}) {
    EXPECT_EQ(CheckpointId::parse(id.folder()), id) << id.folder();
  }
  for (const char* name :
       {"step-", "step-5", "step-00000005.0", "step-00000005.", "step-00000005.-1", "step--0000005",
        "step-00000005x", "step-00000005.2147483647", "stop-00000005", "abandoned-step-00000005"}) {
    EXPECT_FALSE(CheckpointId::parse(name)) << name;
  }
}

}  // namespace
}  // namespace fourfold
