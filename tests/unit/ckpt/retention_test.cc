#include "ckpt/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ckpt/catalog.h"
#include "ckpt/commands.h"
#include "ckpt/file_names.h"
#include "comm/thread_world.h"
#include "tests/crash/memory_fs.h"
#include "tests/crash/rotating_rank.h"

namespace fourfold {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kDir = "run/checkpoints";
const std::string kExperts = expert_file_name(0);

std::string folder(int step) { return std::string(kDir) + "/" + CheckpointId{Step(step)}.folder(); }

/// A run of one rank; what each step's checkpoint must hold is known.
class RotationTest : public testing::Test {
 protected:
  void start(int keep_latest, int keep_every = 0) {
    rank_.emplace(*world_, fs_, kDir, GridShape(),
                  EngineOptions{.save = {{keep_latest, keep_every}}});
    ASSERT_EQ(failed_start(), "");
  }
  std::string failed_start() { return rank_->start(); }
  std::string save(int step, Taken taken) {
    const Manifest* base = rank_->engine().newest();
    const int before = base ? static_cast<int>(base->id.step.value) : 0;
    versions_[step] = versions_after(base ? versions_.at(before) : Versions(), step, taken);
    return rank_->save(step, taken);
  }
  /// What a load of a step's checkpoint gets wrong.
  std::string wrong(int step) {
    return rank_->loaded_difference(CheckpointId{Step(step)}.folder(), step, versions_.at(step));
  }
  std::vector<std::string> problems() { return checkpoint_verify(fs_, "run").value().problems; }
  void damage(const std::string& path) { fs_.flip(path, fs_.content(path).size() - 5); }

  MemoryFs fs_;
  std::unique_ptr<Communicator> world_ = make_solo();
  std::optional<RotatingRank> rank_;
  std::map<int, Versions> versions_;
};

TEST_F(RotationTest, ExpertFilesStayAsLongAsACheckpointRefersToThem) {
  start(/*keep_latest=*/1);
  EXPECT_EQ(save(1, kAllTaken), "");
  EXPECT_EQ(save(2, 0b000011), "");
  EXPECT_THAT(fs_.list(kDir), ElementsAre("CURRENT", "step-00000001", "step-00000002"));
  EXPECT_THAT(fs_.list(folder(1)), ElementsAre(kExperts)) << "nothing else is needed of it";
  EXPECT_EQ(save(3, 0b001100), "");
  EXPECT_THAT(fs_.list(kDir),
              ElementsAre("CURRENT", "step-00000001", "step-00000002", "step-00000003"));
  EXPECT_EQ(wrong(3), "");
  EXPECT_EQ(save(4, 0b110000), "");
  EXPECT_THAT(fs_.list(kDir),
              ElementsAre("CURRENT", "step-00000002", "step-00000003", "step-00000004"))
      << "nothing refers to the first any more";
  EXPECT_EQ(wrong(4), "");
  EXPECT_THAT(problems(), IsEmpty());
}

TEST_F(RotationTest, MilestonesKeepWhatTheyReferTo) {
  start(/*keep_latest=*/1, /*keep_every=*/3);
  EXPECT_EQ(save(1, kAllTaken), "");
  for (int step = 2; step <= 9; ++step) EXPECT_EQ(save(step, 3u << (step % 3) * 2), "");
  EXPECT_THAT(fs_.list(kDir),
              ElementsAre("CURRENT", "step-00000001", "step-00000002", "step-00000003",
                          "step-00000004", "step-00000005", "step-00000006", "step-00000007",
                          "step-00000008", "step-00000009"));
  EXPECT_EQ(read_catalog(fs_, kDir).complete.size(), 3u);
  for (const int step : {3, 6, 9}) EXPECT_EQ(wrong(step), "") << step;
}

TEST_F(RotationTest, WhatIsLeftOfACheckpointIsNotLoaded) {
  start(/*keep_latest=*/1);
  EXPECT_EQ(save(1, kAllTaken), "");
  EXPECT_EQ(save(2, 0b000011), "");
  EXPECT_THAT(wrong(1), HasSubstr("manifest"));
  EXPECT_THAT(checkpoint_ls(fs_, "run").value(),
              HasSubstr("step-00000001      expert files of a checkpoint that is gone"));
  damage(folder(2) + "/" + dense_file_name(0));
  EXPECT_THAT(failed_start(), AllOf(HasSubstr("none of the checkpoints"),
                                    HasSubstr("step-00000002"), Not(HasSubstr("step-00000001:"))));
}

TEST_F(RotationTest, GarbageOfAStartIsWhatNothingRefersTo) {
  start(/*keep_latest=*/1);
  EXPECT_EQ(save(1, kAllTaken), "");
  EXPECT_EQ(save(2, 0b000011), "");
  fs_.make_directories(folder(5));
  fs_.create(folder(5) + "/" + kExperts)->close();
  fs_.create(folder(1) + "/" + dense_file_name(0))->close();
  fs_.create(folder(1) + "/" + expert_file_name(7))->close();
  EXPECT_FALSE(collect_garbage(fs_, kDir));
  EXPECT_THAT(fs_.list(kDir), ElementsAre("CURRENT", "step-00000001", "step-00000002"));
  EXPECT_THAT(fs_.list(folder(1)), ElementsAre(kExperts));
  EXPECT_EQ(wrong(2), "");
}

/// As long as a checkpoint may be loaded, nothing goes that it may refer to.
TEST_F(RotationTest, AManifestThatCannotBeReadKeepsAllExpertFiles) {
  start(/*keep_latest=*/2);
  EXPECT_EQ(save(1, kAllTaken), "");
  EXPECT_EQ(save(2, 0b000011), "");
  EXPECT_EQ(save(3, 0b000011), "");
  ASSERT_THAT(fs_.list(folder(1)), ElementsAre(kExperts));
  const std::string two = folder(2) + "/manifest.json", three = folder(3) + "/manifest.json";
  damage(two);
  damage(three);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto left = collect_garbage(fs_, kDir);
    ASSERT_TRUE(left);
    EXPECT_THAT(left->what(), AllOf(HasSubstr("are kept"), HasSubstr("step-00000002: manifest")));
    EXPECT_THAT(fs_.list(folder(1)), ElementsAre(kExperts));
  }
  damage(three);  // Whole again.
  EXPECT_EQ(wrong(3), "");
  // A save is well, and says why older files stay; what its own retention drops is no reason.
  EXPECT_THAT(save(4, kAllTaken), IsEmpty());
  damage(three);
  EXPECT_THAT(save(5, kAllTaken), IsEmpty());
  EXPECT_EQ(save(6, 0b000001), "");
  EXPECT_THAT(fs_.list(kDir), ElementsAre("CURRENT", "step-00000005", "step-00000006"));
  damage(folder(5) + "/manifest.json");
  fs_.make_directories(folder(2));
  fs_.create(folder(2) + "/" + kExperts)->close();
  EXPECT_TRUE(remove_older(fs_, kDir, {.keep_latest = 2}));
  EXPECT_TRUE(fs_.exists(folder(2) + "/" + kExperts));
  EXPECT_FALSE(remove_older(fs_, kDir, {.keep_latest = 1})) << "it is no candidate any more";
  EXPECT_FALSE(fs_.exists(folder(2)));
  EXPECT_EQ(wrong(6), "");
}

/// CURRENT names a checkpoint whose manifest is gone: evidence, with all that it may refer to.
TEST_F(RotationTest, AManifestThatIsGoneKeepsAllExpertFilesToo) {
  start(/*keep_latest=*/1);
  EXPECT_EQ(save(1, kAllTaken), "");
  EXPECT_EQ(save(2, 0b000011), "");
  const std::string manifest = fs_.content(folder(2) + "/manifest.json");
  fs_.remove_file(folder(2) + "/manifest.json");
  EXPECT_TRUE(collect_garbage(fs_, kDir));
  write_file_atomically(fs_, folder(2) + "/manifest.json", manifest);
  EXPECT_EQ(wrong(2), "");
}

TEST_F(RotationTest, DamageInAnOlderFileIsNamedAndMeansTheCheckpointBefore) {
  start(/*keep_latest=*/3);
  EXPECT_EQ(save(1, kAllTaken), "");
  EXPECT_EQ(save(2, 0b000011), "");
  EXPECT_EQ(save(3, 0b001100), "");
  damage(folder(2) + "/" + kExperts);
  EXPECT_THAT(problems(), Contains(AllOf(HasSubstr("step-00000002/" + kExperts),
                                         HasSubstr("experts.0@exp_avg"))));
  EXPECT_THAT(
      checkpoint_verify(fs_, folder(3)).value().problems,
      Contains(AllOf(HasSubstr("step-00000002/" + kExperts), HasSubstr("experts.0@exp_avg"))));
  EXPECT_THAT(checkpoint_verify(fs_, folder(1)).value().problems, IsEmpty());
  EXPECT_EQ(failed_start(), "");
  EXPECT_EQ(rank_->loaded()->id, (CheckpointId{Step(1), 0}));
  EXPECT_EQ(rank_->difference(1, versions_.at(1)), "");
  EXPECT_THAT(rank_->lines, Contains(AllOf(HasSubstr("passing over checkpoint step-00000003"),
                                           HasSubstr("step-00000002/" + kExperts),
                                           HasSubstr("experts.0@exp_avg"))));
  EXPECT_THAT(fs_.list(kDir), ElementsAre("CURRENT", "abandoned-step-00000002",
                                          "abandoned-step-00000003", "step-00000001"));
}

TEST_F(RotationTest, AMissingOlderFileIsNamed) {
  start(/*keep_latest=*/1);
  EXPECT_EQ(save(1, kAllTaken), "");
  EXPECT_EQ(save(2, 0b000011), "");
  fs_.remove_tree(folder(1));
  EXPECT_THAT(wrong(2), HasSubstr("step-00000001/" + kExperts));
  EXPECT_THAT(checkpoint_ls(fs_, "run").value(), HasSubstr("damaged: step-00000001: cannot open"));
  EXPECT_THAT(problems(), Contains(HasSubstr("step-00000001/" + kExperts)));
}

/// Each return counts the incarnation up, so that no id is used twice.
TEST_F(RotationTest, IdsAreUniqueOverReturns) {
  start(/*keep_latest=*/2);
  for (int step = 1; step <= 3; ++step) EXPECT_EQ(save(step, kAllTaken), "");
  damage(folder(3) + "/" + dense_file_name(0));
  EXPECT_EQ(failed_start(), "");
  EXPECT_EQ(failed_start(), "") << "a start that only loads";
  EXPECT_EQ(rank_->save(3, 0b1), "");
  EXPECT_EQ(rank_->save(4, 0b10), "");
  EXPECT_THAT(fs_.list(kDir),
              ElementsAre("CURRENT", "step-00000002", "step-00000003.1", "step-00000004.1"))
      << "the run keeps its incarnation, what it went back to before is gone";
  damage("run/checkpoints/step-00000004.1/config.toml");
  EXPECT_EQ(failed_start(), "");
  EXPECT_EQ(rank_->loaded()->id, (CheckpointId{Step(3), 1}));
  EXPECT_EQ(rank_->save(4, 0b100), "");
  EXPECT_TRUE(fs_.exists("run/checkpoints/step-00000004.2"));
  EXPECT_THAT(problems(), IsEmpty());
}

TEST(Incarnation, IsAboveAllThatTheRunWentBackToBefore) {
  const CheckpointId here{Step(10), 2};
  Catalog catalog;
  catalog.complete = {{Step(5), 0}, here};
  EXPECT_EQ(incarnation_after(catalog, here), 2);
  catalog.abandoned = {"abandoned-step-00000020.1"};
  EXPECT_EQ(incarnation_after(catalog, here), 2);
  catalog.abandoned = {"abandoned-step-00000020.1-3", "abandoned-step-00000020.4-2"};
  EXPECT_EQ(incarnation_after(catalog, here), 5);
  catalog.abandoned.clear();
  catalog.complete.push_back({Step(20), 0});
  EXPECT_EQ(incarnation_after(catalog, here), 3);
  catalog.complete.push_back({Step(30), 7});
  EXPECT_EQ(incarnation_after(catalog, here), 8);
}

TEST_F(RotationTest, AManifestUnderAnothersNameIsRefused) {
  start(/*keep_latest=*/3);
  EXPECT_EQ(save(1, kAllTaken), "");
  EXPECT_EQ(save(2, 0b1), "");
  fs_.rename(folder(2), folder(7));
  EXPECT_THAT(rank_->loaded_difference("step-00000007", 2, versions_.at(2)),
              HasSubstr("has the manifest of step-00000002"));
}

TEST_F(RotationTest, CheckpointsMayBeMovedAndOneRenamedBesideTheOthers) {
  start(/*keep_latest=*/1);
  EXPECT_EQ(save(1, kAllTaken), "");
  EXPECT_EQ(save(2, 0b000110), "");
  fs_.rename("run", "elsewhere");
  fs_.rename("elsewhere/checkpoints/step-00000002", "elsewhere/checkpoints/best");
  RotatingRank moved(*world_, fs_, "elsewhere/checkpoints", GridShape());
  EXPECT_EQ(moved.loaded_difference("best", 2, versions_.at(2)), "");
  EXPECT_THAT(checkpoint_verify(fs_, "elsewhere/checkpoints/best").value().problems, IsEmpty());
}

}  // namespace
}  // namespace fourfold
