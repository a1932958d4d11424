// Checkpoints of each version of the format, as programs of their time wrote them: FOURFOLD_GOLDEN
// is their folder. A change that cannot read them needs a new version of the format.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/crc32c.h"
#include "ckpt/catalog.h"
#include "ckpt/commands.h"
#include "ckpt/file_names.h"
#include "ckpt/retention.h"
#include "ckpt/store.h"
#include "comm/thread_world.h"
#include "tests/crash/golden_state.h"

namespace fourfold {
namespace {

using testing::HasSubstr;

std::string golden(int format) {
  return std::string(FOURFOLD_GOLDEN) + "/checkpoint-v" + std::to_string(format);
}
constexpr const char* kStep = "step-00000200";

std::string meta_difference(const CheckpointMeta& meta) {
  const CheckpointMeta golden = golden_meta();
  if (meta.step != golden.step || meta.next_sample != golden.next_sample) return "position";
  if (meta.run_id != golden.run_id) return "run";
  if (meta.model != golden.model || meta.model_hash != golden.model_hash) return "model";
  if (meta.grid != golden.grid || meta.order != golden.order) return "grid";
  if (meta.zero != golden.zero || meta.seed != golden.seed) return "zero or seed";
  if (meta.intra_op_threads != golden.intra_op_threads) return "threads";
  if (meta.scalars != golden.scalars) return "scalars";
  return meta.config_toml == golden.config_toml ? "" : "configuration";
}

/// What a load on so many ranks gives each: empty where state and meta are the golden ones, bit by
/// bit; else what is wrong.
std::vector<std::string> load(const std::string& dir, int ranks, int format = 1) {
  std::vector<std::string> results(static_cast<std::size_t>(ranks));
  PosixFs fs;
  const auto rank_main = [&](Communicator& world) {
    GoldenState state(world.rank(), ranks, format);
    const auto loaded = CheckpointStore(fs, dir).load(world, "", state.tensors());
    std::string& result = results[static_cast<std::size_t>(world.rank())];
    result = loaded ? state.difference() : loaded.error().what();
    if (loaded && result.empty()) result = meta_difference(loaded.value().meta);
  };
  if (ranks == 1) {
    rank_main(*make_solo());
  } else {
    run_thread_ranks(ranks, {}, rank_main);
  }
  return results;
}

std::vector<std::string> nothing_wrong(int ranks) {
  return std::vector<std::string>(static_cast<std::size_t>(ranks));
}

/// A copy that a test may change.
class GoldenCopy : public testing::Test {
 protected:
  void SetUp() override { copy(1); }
  void copy(int format) {
    fs_.remove_tree(dir_);
    std::filesystem::copy(golden(format), dir_, std::filesystem::copy_options::recursive);
  }
  void TearDown() override { fs_.remove_tree(dir_); }

  std::string manifest() { return read_file(fs_, manifest_path_, kMaxManifestBytes); }

  /// Stores a manifest whose last member, the checksum, is made right.
  void store_manifest(std::string text) {
    text.resize(text.rfind(",\n\"crc32c\""));
    const std::uint32_t crc = crc32c(text.data(), text.size());
    write_file_atomically(fs_, manifest_path_,
                          text + fmt::format(",\n\"crc32c\":\"{:08x}\"}}\n", crc));
  }

  PosixFs fs_;
  const std::string dir_ = testing::TempDir() + "/golden_" +
                           testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string manifest_path_ = dir_ + "/" + kStep + "/" + kManifestName;
};

/// Puts `what` behind each `place` and counts them.
int insert_behind(std::string& text, const std::string& place, const std::string& what) {
  int count = 0;
  for (auto at = text.find(place); at != std::string::npos; at = text.find(place, at + 1)) {
    text.insert(at + place.size(), what);
    ++count;
  }
  return count;
}

TEST(Golden, Version1IsLoadedBitByBit) {
  for (const int ranks : {1, 2, 3}) EXPECT_EQ(load(golden(1), ranks), nothing_wrong(ranks));
}

TEST(Golden, Version2IsLoadedBitByBit) {
  for (const int ranks : {1, 2, 3}) EXPECT_EQ(load(golden(2), ranks, 2), nothing_wrong(ranks));
}

TEST_F(GoldenCopy, NothingOfVersion2IsDamagedOrGarbage) {
  copy(2);
  const auto report = checkpoint_verify(fs_, dir_);
  ASSERT_TRUE(report) << report.error().what();
  EXPECT_TRUE(report.value().ok()) << report.value().text;
  EXPECT_THAT(report.value().text, HasSubstr("ok, step 200, 20 tensors in 4 files"));
  EXPECT_THAT(fs_.list(dir_ + "/step-00000100"),
              testing::ElementsAre(expert_file_name(0), expert_file_name(1)));
  ASSERT_FALSE(collect_garbage(fs_, dir_));
  for (const int ranks : {1, 3}) EXPECT_EQ(load(dir_, ranks, 2), nothing_wrong(ranks));
}

TEST_F(GoldenCopy, IsVerified) {
  const auto report = checkpoint_verify(fs_, dir_);
  ASSERT_TRUE(report) << report.error().what();
  EXPECT_TRUE(report.value().ok()) << report.value().text;
  EXPECT_THAT(report.value().text, HasSubstr("ok, step 200, 14 tensors in 3 files"));
}

TEST_F(GoldenCopy, IsWhatCurrentNames) {
  GoldenState state(0, 1, 1);
  const auto loaded = CheckpointStore(fs_, dir_).load_latest(*make_solo(), state.tensors());
  ASSERT_TRUE(loaded) << loaded.error().what();
  ASSERT_TRUE(loaded.value());
  const CheckpointId id{Step(200), 0};
  EXPECT_EQ(read_catalog(fs_, dir_).current, id);
  EXPECT_EQ(loaded.value()->id, id);
  EXPECT_EQ(state.difference(), "");
}

TEST_F(GoldenCopy, OfANewerVersionIsRefused) {
  std::string text = manifest();
  const std::string version = "\"version\":1";
  text.replace(text.find(version), version.size(), "\"version\":3");
  store_manifest(text);
  EXPECT_THAT(load(dir_, 1)[0], HasSubstr("format version 3, this program reads 1 to 2"));
  const auto found = find_checkpoint(fs_, dir_);
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().what(), HasSubstr("format version 3, this program reads 1 to 2"));
}

TEST_F(GoldenCopy, MembersThatAreNotKnownArePassedOver) {
  std::string text = manifest();
  const std::string later = R"("later":[{"than":null},1.5,"this"],)";
  text.insert(1, later);
  EXPECT_EQ(insert_behind(text, "\"meta\":{", later), 1);
  EXPECT_EQ(insert_behind(text, "\n{", later), 17) << "14 tensors, 3 files";
  store_manifest(text);
  for (const int ranks : {1, 3}) EXPECT_EQ(load(dir_, ranks), nothing_wrong(ranks));
}

}  // namespace
}  // namespace fourfold
