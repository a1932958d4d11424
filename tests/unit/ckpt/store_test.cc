#include "ckpt/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckpt/catalog.h"
#include "ckpt/commands.h"
#include "ckpt/file_names.h"
#include "ckpt/tensor_file.h"
#include "tests/crash/memory_fs.h"
#include "tests/crash/state_fixture.h"

namespace fourfold {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kDir = "run/checkpoints";
constexpr Retention kTwo{.keep_latest = 2};
constexpr const char* kShard = "rank-00000.dense.safetensors";

class StoreTest : public testing::Test {
 protected:
  void save(int step, const Retention& retention = {}) {
    state_.fill(step);
    const auto saved = store_.save(*world_, test_meta(step), state_.tensors(), retention);
    ASSERT_TRUE(saved) << saved.error().what();
    ASSERT_FALSE(saved.value().retention_error);
  }

  /// The step that load_latest gives, -1 for none, with its bits checked.
  std::int64_t latest() {
    state_.clear();
    const auto loaded = store_.load_latest(*world_, state_.tensors());
    if (!loaded) throw loaded.error();
    if (!loaded.value()) return -1;
    skipped_ = loaded.value()->skipped;
    const auto step = loaded.value()->meta.step.value;
    EXPECT_EQ(state_.difference(static_cast<int>(step)), "");
    return step;
  }

  std::string path(const std::string& folder, const std::string& file = kShard) const {
    return std::string(kDir) + "/" + folder + "/" + file;
  }
  void damage(const std::string& file) { fs_.flip(file, fs_.content(file).size() - 1); }

  MemoryFs fs_;
  std::vector<std::string> log_lines_;
  CheckpointStore store_{
      fs_, kDir, Log([this](LogLevel, std::string_view line) { log_lines_.emplace_back(line); })};
  std::unique_ptr<Communicator> world_ = make_solo();
  TestState state_{GridShape(), 0, false};
  std::vector<std::string> skipped_;
};

TEST_F(StoreTest, GivesBackWhatWasSaved) {
  EXPECT_EQ(latest(), -1);
  save(10);
  save(20);
  EXPECT_EQ(latest(), 20);
  const auto loaded = store_.load(*world_, "step-00000010", state_.tensors());
  ASSERT_TRUE(loaded) << loaded.error().what();
  EXPECT_EQ(state_.difference(10), "");
  const CheckpointMeta& meta = loaded.value().meta;
  const CheckpointMeta want = test_meta(10);
  EXPECT_EQ(meta.step, want.step);
  EXPECT_EQ(meta.next_sample, want.next_sample);
  EXPECT_EQ(meta.seed, want.seed);
  EXPECT_EQ(meta.scalars, want.scalars);
  EXPECT_EQ(meta.config_toml, want.config_toml);
  EXPECT_EQ(fs_.open_files(), 0);
}

TEST_F(StoreTest, FilesAreThoseOfTheFormat) {
  save(10);
  EXPECT_THAT(fs_.files(),
              ElementsAre("run/checkpoints/CURRENT", path("step-00000010", "config.toml"),
                          path("step-00000010", "manifest.json"), path("step-00000010")));
}

TEST_F(StoreTest, ADamagedNewestMeansTheOneBeforeAndIsSetAside) {
  save(10);
  save(20);
  save(30);
  damage(path("step-00000030"));
  EXPECT_EQ(latest(), 20);
  ASSERT_EQ(skipped_.size(), 1u);
  EXPECT_THAT(skipped_[0], HasSubstr("step-00000030"));
  EXPECT_THAT(skipped_[0], HasSubstr("tokens@counter[]"));
  EXPECT_THAT(log_lines_, Contains(HasSubstr("passing over")));
  EXPECT_TRUE(fs_.exists("run/checkpoints/abandoned-step-00000030"));
  EXPECT_EQ(latest(), 20);
  EXPECT_THAT(skipped_, IsEmpty()) << "CURRENT names what was loaded";
  save(30);  // The same step again, another history.
  EXPECT_EQ(latest(), 30);
}

TEST_F(StoreTest, EachPartThatCanBeDamagedIsSteppedOver) {
  for (const char* file : {kShard, "manifest.json", "config.toml"}) {
    for (const bool gone : {false, true}) {
      fs_.remove_tree("run");
      save(10);
      save(20);
      if (gone) {
        fs_.remove_file(path("step-00000020", file));
      } else {
        damage(path("step-00000020", file));
      }
      EXPECT_EQ(latest(), 10) << file;
      EXPECT_THAT(skipped_, ElementsAre(HasSubstr("step-00000020")));
    }
  }
}

TEST_F(StoreTest, WithoutCurrentTheNewestCounts) {
  save(10);
  save(20);
  damage("run/checkpoints/CURRENT");
  EXPECT_EQ(latest(), 20);
  fs_.remove_file("run/checkpoints/CURRENT");
  EXPECT_EQ(latest(), 20);
}

TEST_F(StoreTest, NeverSilentlyFromZero) {
  save(10);
  save(20);
  damage(path("step-00000010"));
  damage(path("step-00000020"));
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto loaded = store_.load_latest(*world_, state_.tensors());
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().kind(), ErrorKind::kNoCheckpoint);
    EXPECT_THAT(loaded.error().what(), HasSubstr("step-00000010"));
    EXPECT_THAT(loaded.error().what(), HasSubstr("step-00000020"));
    EXPECT_THAT(loaded.error().hint(), HasSubstr("ckpt verify"));
  }
  // Nor when a folder was removed by hand and only the pointer is left.
  fs_.remove_tree("run/checkpoints/step-00000010");
  fs_.remove_tree("run/checkpoints/step-00000020");
  EXPECT_FALSE(store_.load_latest(*world_, state_.tensors()));
}

TEST_F(StoreTest, AnInterruptedFirstSaveIsNoHistory) {
  fs_.crash_at = 8;
  state_.fill(10);
  EXPECT_FALSE(store_.save(*world_, test_meta(10), state_.tensors()));
  fs_.power_loss(MemoryFs::Survival::kEverything, 0);
  ASSERT_TRUE(fs_.exists("run/checkpoints/step-00000010"));
  EXPECT_EQ(latest(), -1);
  ASSERT_TRUE(store_.check_shared_folder(*world_));
  EXPECT_FALSE(fs_.exists("run/checkpoints/step-00000010")) << "garbage is removed at the start";
}

TEST_F(StoreTest, AnotherModelIsNamedNotSteppedOver) {
  save(10);
  save(20);
  const auto cause = [&] {
    const auto loaded = store_.load_latest(*world_, state_.tensors());
    EXPECT_EQ(loaded.error().kind(), ErrorKind::kData);
    EXPECT_THAT(loaded.error().hint(), HasSubstr("test model"));
    return std::string(loaded.error().what());
  };
  StateTensor& t = state_.tensors()[1];
  t.shape[0] = 12;
  EXPECT_THAT(cause(), HasSubstr("embed.weight@master is F32 [0:11,0:6] in the checkpoint and F32 "
                                 "[0:12,0:6] in this run"));
  t.shape[0] = 11;
  t.dtype = DType::kI32;
  EXPECT_THAT(cause(), HasSubstr("and I32"));
  t.dtype = DType::kF32;
  t.kind = "exp_max";
  EXPECT_THAT(cause(), HasSubstr("the checkpoint has no embed.weight@exp_max"));
  t.optional = true;
  t.loaded = true;
  EXPECT_TRUE(store_.load_latest(*world_, state_.tensors()));
  EXPECT_FALSE(t.loaded);
  EXPECT_TRUE(state_.tensors()[0].loaded);
}

TEST_F(StoreTest, RetentionKeepsTheNewest) {
  for (int step = 1; step <= 5; ++step) save(step, kTwo);
  EXPECT_THAT(fs_.list(kDir), ElementsAre("CURRENT", "step-00000004", "step-00000005"));
  EXPECT_EQ(latest(), 5);
  damage(path("step-00000005"));
  EXPECT_EQ(latest(), 4);
  save(5, kTwo);
  save(6, kTwo);
  EXPECT_THAT(fs_.list(kDir), ElementsAre("CURRENT", "step-00000005", "step-00000006"))
      << "what was set aside goes once the run is past it";
}

TEST_F(StoreTest, RetentionKeepsEveryMth) {
  constexpr Retention kMilestones{.keep_latest = 2, .keep_every = 4};
  for (int step = 1; step <= 11; ++step) save(step, kMilestones);
  EXPECT_THAT(fs_.list(kDir), ElementsAre("CURRENT", "step-00000004", "step-00000008",
                                          "step-00000010", "step-00000011"));
}

TEST_F(StoreTest, TheSameStepTwiceNeverTouchesTheFirst) {
  save(10);
  state_.fill(77);
  ASSERT_TRUE(store_.save(*world_, test_meta(10), state_.tensors()));
  EXPECT_TRUE(fs_.exists(path("step-00000010")));
  ASSERT_TRUE(store_.load_latest(*world_, state_.tensors()));
  EXPECT_EQ(state_.difference(77), "");
  ASSERT_TRUE(store_.save(*world_, test_meta(10), state_.tensors(), kTwo));
  EXPECT_THAT(fs_.list(kDir), ElementsAre("CURRENT", "step-00000010.2"));
}

TEST_F(StoreTest, FreeSpaceIsCheckedBefore) {
  save(10);
  fs_.reported_free = 1000;
  const long before = fs_.operations();
  const auto saved = store_.save(*world_, test_meta(20), state_.tensors());
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().kind(), ErrorKind::kData);
  EXPECT_THAT(saved.error().what(), HasSubstr("free 1000 B"));
  EXPECT_THAT(saved.error().hint(), HasSubstr("keep_latest"));
  EXPECT_EQ(fs_.operations(), before);
  fs_.reported_free = -1;
  EXPECT_EQ(latest(), 10);
}

TEST_F(StoreTest, AFolderMayBeCopiedOrMoved) {
  save(10);
  save(20);
  fs_.rename("run", "elsewhere");
  CheckpointStore moved(fs_, "elsewhere/checkpoints");
  const auto loaded = moved.load(*world_, "", state_.tensors());
  ASSERT_TRUE(loaded) << loaded.error().what();
  EXPECT_EQ(state_.difference(20), "");
  // One step alone, under a name of one's own.
  fs_.rename("elsewhere/checkpoints/step-00000010", "elsewhere/best");
  const auto found = find_checkpoints(fs_, "elsewhere/best/");
  ASSERT_TRUE(found) << found.error().what();
  CheckpointStore best(fs_, found.value().dir);
  const auto one = best.load(*world_, found.value().folder, state_.tensors());
  ASSERT_TRUE(one) << one.error().what();
  EXPECT_EQ(state_.difference(10), "");
}

TEST_F(StoreTest, LoadingByNameChangesNothing) {
  save(10);
  save(20);
  damage(path("step-00000020"));
  const auto before = fs_.files();
  const long operations = fs_.operations();
  const auto loaded = store_.load(*world_, "", state_.tensors());
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded.value().id.step.value, 10);
  EXPECT_EQ(store_.load(*world_, "step-00000020", state_.tensors()).error().kind(),
            ErrorKind::kNoCheckpoint);
  EXPECT_EQ(store_.load(*world_, "step-00000099", state_.tensors()).error().kind(),
            ErrorKind::kNoCheckpoint);
  EXPECT_EQ(fs_.operations(), operations);
  EXPECT_EQ(fs_.files(), before);
}

/// A well-formed checkpoint that lacks elements, or holds some twice, fills no tensor.
TEST_F(StoreTest, EachElementMustComeExactlyOnce) {
  float data[12] = {}, out[12] = {};
  const auto load = [&](std::vector<const char*> boxes, const char* wanted) -> std::string {
    fs_.remove_tree("hand");
    fs_.make_directories("hand/step-00000001");
    Manifest manifest;
    manifest.id = {Step(1), 0};
    manifest.tensors = {{"w", "master", DType::kF32, TensorClass::kDense, {4, 3}}};
    int rank = 0;
    for (const char* box : boxes) {
      const RegionSource source{"w@master", DType::kF32, *Region::parse(box), data};
      manifest.files.push_back(
          write_tensor_file(fs_, "hand/step-00000001", dense_file_name(rank++), {&source, 1}, {}));
    }
    commit_checkpoint(fs_, "hand", manifest, "");
    StateTensor tensor;
    tensor.name = "w";
    tensor.kind = "master";
    tensor.shape = {4, 3};
    tensor.region = *Region::parse(wanted);
    tensor.data = out;
    CheckpointStore store(fs_, "hand");
    const auto loaded = store.load(*world_, "", {&tensor, 1});
    return loaded ? "" : loaded.error().what();
  };
  EXPECT_EQ(load({"[0:3,0:3]", "[3:4,0:3]"}, "[1:4,0:2]"), "");
  EXPECT_EQ(load({"[0:3,0:3]"}, "[1:3,0:2]"), "") << "what is not wanted may be missing";
  EXPECT_THAT(load({"[0:3,0:3]"}, "[1:4,0:2]"), HasSubstr("w@master: 2 of 6 elements are missing"));
  EXPECT_THAT(load({"[0:3,0:3]", "[2:4,0:3]"}, "[0:4,0:3]"), HasSubstr("hold the same elements"));
  EXPECT_THAT(load({"[0:12]"}, "[0:4,0:3]"), HasSubstr("another dtype or rank"));
}

TEST_F(StoreTest, RegionsThatAreNotTheWholeAreNotSaved) {
  state_.fill(1);
  state_.tensors()[3].region.dims[0].end -= 1;
  const auto saved = store_.save(*world_, test_meta(1), state_.tensors());
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().kind(), ErrorKind::kInternal);
}

/// The same on the files of the operating system, with descriptors counted by it.
TEST(StoreOnDisk, SavesLoadsAndLeavesNoDescriptor) {
  char name[] = "/tmp/fourfold-store-XXXXXX";
  const std::string root = ::mkdtemp(name);
  PosixFs fs;
  CheckpointStore store(fs, root + "/run/checkpoints");
  const auto world = make_solo();
  TestState state(GridShape(), 0, false);
  ASSERT_TRUE(store.check_shared_folder(*world));
  const std::size_t before = fs.list("/proc/self/fd").size();
  for (int step = 1; step <= 20; ++step) {
    state.fill(step);
    const auto saved = store.save(*world, test_meta(step), state.tensors(), kTwo);
    ASSERT_TRUE(saved) << saved.error().what();
  }
  state.clear();
  ASSERT_TRUE(store.load_latest(*world, state.tensors()));
  EXPECT_EQ(state.difference(20), "");
  EXPECT_EQ(fs.list("/proc/self/fd").size(), before);
  EXPECT_THAT(fs.list(store.dir()),
              ElementsAre("CURRENT", "RUN_ID", "step-00000019", "step-00000020"));
  const auto report = checkpoint_verify(fs, root + "/run");
  ASSERT_TRUE(report);
  EXPECT_THAT(report.value().problems, IsEmpty());
  fs.remove_tree(root);
}

TEST_F(StoreTest, TwoHundredSavesLeaveNothingOpen) {
  for (int step = 1; step <= 200; ++step) {
    save(step, kTwo);
    ASSERT_EQ(fs_.open_files(), 0);
    ASSERT_LE(fs_.files().size(), 7u);
  }
  EXPECT_EQ(latest(), 200);
}

}  // namespace
}  // namespace fourfold
