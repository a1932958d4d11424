#include "ckpt/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckpt/catalog.h"
#include "ckpt/file_names.h"
#include "ckpt/store.h"
#include "ckpt/tensor_file.h"
#include "tests/crash/memory_fs.h"
#include "tests/crash/state_fixture.h"

namespace fourfold {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kDir = "run/checkpoints";
constexpr const char* kShard = "run/checkpoints/step-00000020/rank-00000.dense.safetensors";

class CommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    TestState state(GridShape(), 0, false);
    CheckpointStore store(fs_, kDir);
    const auto world = make_solo();
    for (const int step : {10, 20}) {
      state.fill(step);
      ASSERT_TRUE(store.save(*world, test_meta(step), state.tensors()));
    }
  }
  std::vector<std::string> problems(const std::string& path = "run") {
    const auto report = checkpoint_verify(fs_, path);
    if (!report) return {report.error().what()};
    for (const std::string& problem : report.value().problems) {
      EXPECT_THAT(report.value().text, HasSubstr(problem));
    }
    return report.value().problems;
  }

  MemoryFs fs_;
};

TEST_F(CommandsTest, APathMayBeRunFolderCheckpointsOrStep) {
  for (const char* path : {"run", "run/", kDir, "run/checkpoints/step-00000020/"}) {
    EXPECT_THAT(problems(path), IsEmpty()) << path;
    EXPECT_THAT(checkpoint_ls(fs_, path).value(), HasSubstr("step-00000020")) << path;
    EXPECT_THAT(checkpoint_show(fs_, path).value(), HasSubstr("step              20")) << path;
    EXPECT_EQ(checkpoint_peek(fs_, path).value().config_toml, "[run]\nseed = 1234\n");
  }
  EXPECT_EQ(checkpoint_ls(fs_, "none").error().kind(), ErrorKind::kData);
  fs_.make_directories("empty");
  for (const auto& error :
       {checkpoint_ls(fs_, "empty").error(), checkpoint_show(fs_, "empty").error(),
        checkpoint_verify(fs_, "empty").error(), checkpoint_peek(fs_, "empty").error()}) {
    EXPECT_EQ(error.kind(), ErrorKind::kNoCheckpoint);
  }
}

TEST_F(CommandsTest, ListSaysWhatIsCurrentAndWhatIsDamaged) {
  fs_.content("run/checkpoints/step-00000010/rank-00000.dense.safetensors") += "x";
  fs_.make_directories("run/checkpoints/step-00000030");
  fs_.make_directories("run/checkpoints/abandoned-step-00000040");
  const std::string text = checkpoint_ls(fs_, "run").value();
  EXPECT_THAT(text, HasSubstr("step-00000010             10      1x1x1x1     0      2"));
  EXPECT_THAT(text, HasSubstr("damaged: rank-00000.dense.safetensors has"));
  EXPECT_THAT(text, HasSubstr("  current\n"));
  EXPECT_THAT(text, HasSubstr("step-00000030      incomplete"));
  EXPECT_THAT(text, HasSubstr("abandoned-step-00000040 abandoned"));
}

TEST_F(CommandsTest, ShowNamesEveryTensor) {
  const std::string text = checkpoint_show(fs_, "run").value();
  for (const char* part : {"layers.0.q.weight", "exp_avg_sq", "BF16", "301x67", "scalar", "router",
                           "test model", "lr                6e-4", "run-1"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST_F(CommandsTest, EachFlippedByteIsFoundAndTheTensorNamed) {
  const std::size_t size = fs_.content(kShard).size();
  const std::string whole = fs_.content(kShard);
  // The header and the ends of the data byte by byte, the large middle in steps.
  for (std::size_t i = 0; i < size; i += i < 20000 || i + 3000 > size ? 97 : 30011) {
    fs_.flip(kShard, i, 0x10);
    EXPECT_THAT(problems(), Not(IsEmpty())) << i;
    fs_.flip(kShard, i, 0x10);
  }
  fs_.flip(kShard, size - 1);
  EXPECT_THAT(problems(), ElementsAre(HasSubstr("tokens@counter[]"),
                                      HasSubstr("tokens@counter: 1 of 1 elements are missing")));
  fs_.flip(kShard, size - 1);
  const auto at = whole.find("crc32c:cube@master");
  fs_.flip(kShard, at);
  EXPECT_THAT(problems()[0], HasSubstr("the checksum of its header"));
  fs_.flip(kShard, at);
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(CommandsTest, FlipsBesideTheTensorsAreFound) {
  for (const char* file : {"run/checkpoints/CURRENT", "run/checkpoints/step-00000010/manifest.json",
                           "run/checkpoints/step-00000010/config.toml"}) {
    for (std::size_t i = 0; i < fs_.content(file).size(); i += 7) {
      fs_.flip(file, i);
      EXPECT_THAT(problems(), Not(IsEmpty())) << file << " " << i;
      fs_.flip(file, i);
    }
  }
  fs_.remove_file(kShard);
  EXPECT_THAT(problems()[0], HasSubstr(kShard));
}

/// A well-formed checkpoint whose tensors are wrong: only the count of elements can tell.
TEST_F(CommandsTest, MissingAndDoubledElementsAreFound) {
  const float data[12] = {};
  const auto build = [&](std::vector<const char*> boxes, const char* kind) {
    fs_.remove_tree("hand");
    fs_.make_directories("hand/step-00000001");
    Manifest manifest;
    manifest.id = {Step(1), 0};
    manifest.tensors = {{"w", "master", DType::kF32, TensorClass::kDense, {4, 3}}};
    int rank = 0;
    for (const char* box : boxes) {
      const RegionSource source{std::string("w@") + kind, DType::kF32, *Region::parse(box), data};
      manifest.files.push_back(
          write_tensor_file(fs_, "hand/step-00000001", dense_file_name(rank++), {&source, 1}, {}));
    }
    commit_checkpoint(fs_, "hand", manifest, "");
    return problems("hand");
  };
  EXPECT_THAT(build({"[0:3,0:3]", "[3:4,0:3]"}, "master"), IsEmpty());
  EXPECT_THAT(build({"[0:3,0:3]"}, "master"), ElementsAre(HasSubstr("w@master: 3 of 12")));
  EXPECT_THAT(build({"[0:3,0:3]", "[2:4,0:3]"}, "master"), ElementsAre(HasSubstr("hold the same")));
  EXPECT_THAT(build({"[0:3,0:4]"}, "master"), ElementsAre(HasSubstr("lies outside")));
  EXPECT_THAT(build({"[0:12]"}, "master"), ElementsAre(HasSubstr("lies outside")));
  EXPECT_THAT(build({"[0:4,0:3]"}, "exp_avg"),
              ElementsAre(HasSubstr("w@exp_avg[0:4,0:3] is no tensor"), HasSubstr("12 of 12")));
}

}  // namespace
}  // namespace fourfold
