// Commands on checkpoints whose experts lie in older ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "ckpt/catalog.h"
#include "ckpt/commands.h"
#include "ckpt/diff.h"
#include "ckpt/engine.h"
#include "ckpt/file_names.h"
#include "ckpt/reshard.h"
#include "tests/crash/memory_fs.h"
#include "tests/unit/ckpt/model_state.h"

namespace fourfold {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kFirst = "step-00000007";
constexpr const char* kSecond = "step-00000008";

RunSpec moe_run(const GridShape& grid, int expert) {
  return model_run(
      "gpt", grid, 1,
      {"model.moe.experts=6", "model.moe.ffn=19", "parallel.expert=" + std::to_string(expert)});
}

bool is_taken(const StateTensor& t) {
  return t.name.find(".experts.1.") != t.name.npos || t.name.find(".experts.4.") != t.name.npos;
}

/// Saves a run's state of version 1 at step 7, and of version 2 at step 8, of which two experts are
/// written; where `whole`, the state that this makes up is written whole instead.
void save_twice(Fs& fs, const std::string& dir, const RunSpec& run, bool whole) {
  CheckpointMeta meta = test_meta(7, run.parallel.grid, run.memory.zero);
  meta.config_toml = resolved_toml(run);
  run_thread_ranks(run.parallel.grid.size(), {}, [&](Communicator& world) {
    ModelState state(run, world.rank(), 1), newer(run, world.rank(), 2);
    CheckpointStore store(fs, dir + "/checkpoints");
    SaveSelection selection;
    for (StateTensor& t : state.tensors()) {
      t.rotates = !whole && t.cls == TensorClass::kExpert;
      selection.push_back(is_taken(t));
    }
    CheckpointEngine engine(world, store, state.tensors(), {.async = false}, {});
    CheckpointMeta mine = meta;
    engine.save(mine);
    for (std::size_t i = 0; i < state.tensors().size(); ++i) {
      const StateTensor& t = state.tensors()[i];
      if (whole && t.cls == TensorClass::kExpert && !selection[i]) continue;
      const std::int64_t bytes = t.region.elements() * dtype_size(t.dtype);
      if (bytes == 0) continue;
      std::memcpy(t.data, newer.tensors()[i].data, static_cast<std::size_t>(bytes));
    }
    mine.step = Step(8);
    engine.save(mine, whole ? SaveSelection() : selection);
    for (const EngineReport& report : engine.take_reports()) {
      EXPECT_FALSE(report.save.error) << report.save.error->what();
    }
  });
}

class References : public testing::Test {
 protected:
  void SetUp() override {
    save_twice(fs_, "run", run_, /*whole=*/false);
    save_twice(fs_, "whole", run_, /*whole=*/true);
  }
  std::string second(const std::string& run = "run") const {
    return run + "/checkpoints/" + kSecond;
  }

  MemoryFs fs_;
  const RunSpec run_ = moe_run(GridShape(2, 1, 2, 1), 2);
};

TEST_F(References, ShowSaysWhatLiesWhere) {
  const std::string text = checkpoint_show(fs_, second()).value();
  EXPECT_THAT(text, HasSubstr("\nin step-00000007: "));
  EXPECT_THAT(text,
              HasSubstr("tensors (grid 2x1x2x1, order yxzd, ZeRO 1)\n  " + expert_file_name(0)));
  EXPECT_THAT(text,
              testing::ContainsRegex("experts.0.up_proj.weight *master [^\n]* in step-00000007\n"));
  EXPECT_THAT(text, Not(testing::ContainsRegex("experts.1.up_proj.weight *master [^\n]* in step")));
  EXPECT_THAT(checkpoint_show(fs_, second("whole")).value(), Not(HasSubstr("in step-")));
}

TEST_F(References, DiffReadsTensorsWhereverTheyLie) {
  const DiffReport same = checkpoint_diff(fs_, second(), second("whole")).value();
  EXPECT_TRUE(same.equal) << same.text;
  const DiffReport older =
      checkpoint_diff(fs_, second(), std::string("run/checkpoints/") + kFirst).value();
  EXPECT_THAT(older.text, HasSubstr("experts.1.up_proj.weight@master"));
  EXPECT_THAT(older.text, Not(HasSubstr("experts.0.up_proj.weight@master")));
}

TEST_F(References, ReshardWritesAWholeCheckpoint) {
  for (const ReshardGrid& to : {ReshardGrid{GridShape(1, 1, 1, 1), 1},
                                {GridShape(2, 1, 2, 1), 2},
                                {GridShape(1, 2, 1, 2), 2}}) {
    fs_.remove_tree("made");
    reshard_checkpoint(fs_, second(), "made", to, {});
    const std::string text = fs_.content(second("made") + "/manifest.json");
    EXPECT_THAT(text, AllOf(HasSubstr("\"version\":1,"), Not(HasSubstr("\"version\":\"step"))));
    EXPECT_TRUE(checkpoint_diff(fs_, "made", "whole").value().equal);
    EXPECT_THAT(checkpoint_verify(fs_, "made").value().problems, IsEmpty());
    for (const std::string& path : fs_.files()) {
      EXPECT_FALSE(path.starts_with("made") && is_expert_file(path.substr(path.rfind('/') + 1)));
    }
  }
  // To the grid that it was: byte for byte what a whole save writes.
  reshard_checkpoint(fs_, second(), "same", {GridShape(2, 1, 2, 1), 2}, {});
  for (int rank = 0; rank < 4; ++rank) {
    const std::string file = "/" + dense_file_name(rank);
    EXPECT_TRUE(fs_.content(second("same") + file) == fs_.content(second("whole") + file)) << rank;
  }
}

TEST_F(References, VerifyReadsWhatIsReferredToAndNoMore) {
  EXPECT_THAT(checkpoint_verify(fs_, "run").value().problems, IsEmpty());
  EXPECT_THAT(checkpoint_verify(fs_, "run").value().text,
              HasSubstr(", and in 1 older checkpoints"));
  // Each byte of an expert's data in the first matters to the second, but for those that it wrote.
  std::string& file =
      fs_.content(std::string("run/checkpoints/") + kFirst + "/" + expert_file_name(0));
  const auto damaged = [&](const char* checkpoint) {
    return !checkpoint_verify(fs_, std::string("run/checkpoints/") + checkpoint).value().ok();
  };
  int both = 0, first_alone = 0;
  for (std::size_t i = 8192; i < file.size(); i += 1009) {
    file[i] = static_cast<char>(file[i] ^ 1);
    EXPECT_TRUE(damaged(kFirst)) << i;
    ++(damaged(kSecond) ? both : first_alone);
    file[i] = static_cast<char>(file[i] ^ 1);
  }
  EXPECT_GT(both, 0);
  EXPECT_GT(first_alone, 0);
}

/// Well-formed files that are not what the manifest says of them: only counting can tell.
TEST(ReferencesByHand, EachElementIsThereOnceAcrossCheckpoints) {
  const float data[12] = {};
  bool loads = false;
  const auto build = [&](std::vector<const char*> older, std::vector<const char*> own,
                         std::vector<const char*> own_dense) {
    MemoryFs fs;
    Manifest m;
    m.id = {Step(2), 0};
    const CheckpointId before{Step(1), 0};
    m.tensors = {{"e", "master", DType::kF32, TensorClass::kExpert, {4, 3}, before}};
    m.referred = {{before, GridShape(4, 1, 1, 1), "yxzd", 0, {}}};
    const auto write = [&](const CheckpointId& id, const std::vector<const char*>& boxes, auto name,
                           std::vector<FileRecord>& records) {
      const std::string folder = "hand/" + id.folder();
      fs.make_directories(folder);
      int rank = 0;
      for (const char* box : boxes) {
        const RegionSource source{"e@master", DType::kF32, *Region::parse(box), data};
        records.push_back(write_tensor_file(fs, folder, name(rank++), {&source, 1}, {}));
      }
    };
    write(before, older, expert_file_name, m.referred[0].files);
    write(m.id, own, expert_file_name, m.files);
    write(m.id, own_dense, dense_file_name, m.files);
    commit_checkpoint(fs, "hand", m, "");
    auto found = checkpoint_verify(fs, "hand").value().problems;
    // A load looks where the tensor should lie, and not elsewhere.
    float out[12] = {};
    StateTensor t{"e", "master", DType::kF32, TensorClass::kExpert, {4, 3}, Region::whole({4, 3})};
    t.data = out;
    const auto loaded = CheckpointStore(fs, "hand").load(*make_solo(), "", {&t, 1});
    loads = loaded.ok();
    return found;
  };
  EXPECT_THAT(build({"[0:3,0:3]", "[3:4,0:3]"}, {}, {}), IsEmpty());
  EXPECT_TRUE(loads);
  EXPECT_THAT(build({"[0:3,0:3]"}, {}, {}), ElementsAre(HasSubstr("3 of 12 elements are missing")));
  EXPECT_FALSE(loads);
  EXPECT_THAT(build({"[0:3,0:3]", "[2:4,0:3]"}, {}, {}), ElementsAre(HasSubstr("hold the same")));
  EXPECT_FALSE(loads);
  EXPECT_THAT(build({"[0:4,0:3]"}, {"[0:4,0:3]"}, {}), ElementsAre(HasSubstr("is no tensor")));
  EXPECT_TRUE(loads);
  EXPECT_THAT(build({"[0:4,0:3]"}, {}, {"[0:4,0:3]"}), ElementsAre(HasSubstr("is no tensor")));
  EXPECT_TRUE(loads);
  EXPECT_THAT(build({}, {}, {"[0:4,0:3]"}),
              ElementsAre(HasSubstr("is no tensor"), HasSubstr("12 of 12")));
  EXPECT_FALSE(loads);
}

}  // namespace
}  // namespace fourfold
