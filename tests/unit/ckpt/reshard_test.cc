#include "ckpt/reshard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "ckpt/catalog.h"
#include "ckpt/commands.h"
#include "ckpt/diff.h"
#include "policy/checkpoint_bytes.h"
#include "tests/crash/memory_fs.h"
#include "tests/unit/ckpt/model_state.h"

namespace fourfold {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kStep = "/checkpoints/step-00000007/";

/// Message of what an action throws; "" where it throws nothing.
template <class Act>
std::string error_of(Act act, ErrorKind kind) {
  try {
    act();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
}

struct Case {
  GridShape grid;
  int zero = 0;
  int expert = 1;
};

const std::vector<Case> kCases = {
    {GridShape(1, 1, 1, 1), 1}, {GridShape(2, 1, 2, 1), 1},
    {GridShape(6, 1, 1, 1), 0},  // More ranks along x than key/value heads.
    {GridShape(1, 3, 1, 2), 0}, {GridShape(2, 2, 1, 2), 1},  // The head's vocabulary over x and y.
};

/// Ranks over experts inside z, with shards and without, and over data.
const std::vector<Case> kExpertCases = {{GridShape(1, 1, 1, 1), 1, 1},
                                        {GridShape(2, 1, 2, 1), 1, 2},
                                        {GridShape(1, 1, 4, 1), 0, 2},
                                        {GridShape(1, 2, 2, 2), 1, 4},
                                        {GridShape(1, 1, 2, 2), 0, 1}};

void expect_the_same_bytes(const std::string& family, const std::vector<std::string>& more,
                           const std::vector<Case>& cases) {
  const auto run_of = [&](const Case& c) {
    std::vector<std::string> overrides{"train.precision=bf16"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    overrides.push_back(fmt::format("parallel.expert={}", c.expert));
    return model_run(family, c.grid, c.zero, overrides);
  };
  for (const Case& from : cases) {
    for (const Case& to : cases) {
      MemoryFs fs;
      save_run(fs, "source", run_of(from), 3);
      save_run(fs, "wanted", run_of(to), 3);
      reshard_checkpoint(fs, "source", "made", {to.grid, to.expert},
                         {fmt::format("memory.zero={}", to.zero)});
      const std::string name = family + " " + from.grid.name() + " to " + to.grid.name();
      for (int rank = 0; rank < to.grid.size(); ++rank) {
        const std::string file = kStep + fmt::format("rank-{:05}.dense.safetensors", rank);
        EXPECT_TRUE(fs.content("made" + file) == fs.content("wanted" + file)) << name << file;
      }
      EXPECT_THAT(checkpoint_verify(fs, "made").value().problems, IsEmpty()) << name;
      EXPECT_TRUE(checkpoint_diff(fs, "source", "made").value().equal) << name;
      EXPECT_EQ(checkpoint_peek(fs, "made").value().grid, to.grid);
      EXPECT_EQ(fs.open_files(), 0);
    }
  }
}

TEST(Reshard, WritesTheBytesThatTheGridWouldHave) {
  for (const std::string family : {"llama", "gpt"}) expect_the_same_bytes(family, {}, kCases);
}

TEST(Reshard, PutsExpertsWhereTheGridHasThem) {
  expect_the_same_bytes("gpt",
                        {"model.moe.experts=6", "model.moe.ffn=19", "model.moe.balance=loss_free"},
                        kExpertCases);
}

TEST(Reshard, MakesARunFileOfTheGrid) {
  MemoryFs fs;
  save_run(fs, "source", model_run("gpt", GridShape(), 1), 1);
  EXPECT_THAT(reshard_checkpoint(fs, "source", "a/made/checkpoints", {GridShape(2, 1, 1, 2)}, {}),
              HasSubstr("from 1x1x1x1 to 2x1x1x2"));
  const RunSpec run = parse_run(fs.content("a/made/config.toml"), "config.toml").value();
  EXPECT_EQ(run.dir, "a/made");
  EXPECT_EQ(run.parallel.grid, GridShape(2, 1, 1, 2));
  EXPECT_EQ(checkpoint_peek(fs, "a/made").value().config_toml, fs.content("a/made/config.toml"));
}

TEST(Reshard, RefusesWhatCannotBe) {
  MemoryFs fs;
  save_run(fs, "source", model_run("gpt", GridShape(), 1), 1);
  const auto to = [&](const GridShape& grid, const std::string& out = "made",
                      const std::vector<std::string>& more = {}) {
    return [&fs, grid, out, more] { reshard_checkpoint(fs, "source", out, {grid}, more); };
  };
  EXPECT_EQ(error_of(to(GridShape(4, 1, 1, 1)), ErrorKind::kUsage),
            "6 heads cannot be cut over x = 4");
  EXPECT_THAT(error_of(to(GridShape(1, 1, 1, 3)), ErrorKind::kUsage),
              HasSubstr("no multiple of micro_batch"));
  EXPECT_EQ(
      error_of(to(GridShape(1, 1, 1, 3), "made", {"train.global_batch=9"}), ErrorKind::kUsage), "");
  EXPECT_THAT(error_of(to(GridShape(), "source"), ErrorKind::kUsage), HasSubstr("a run already"));
  EXPECT_THAT(
      error_of([&] { reshard_checkpoint(fs, "none", "x", {GridShape()}, {}); }, ErrorKind::kData),
      HasSubstr("none is not a folder"));
}

TEST(Reshard, ADamagedSourceLeavesNothing) {
  MemoryFs fs;
  save_run(fs, "source", model_run("gpt", GridShape(), 1), 1);
  const std::string shard = std::string("source") + kStep + "rank-00000.dense.safetensors";
  fs.flip(shard, fs.content(shard).size() - 5);
  const auto before = fs.files();
  EXPECT_THAT(
      error_of([&] { reshard_checkpoint(fs, "source", "made", {GridShape(2, 1, 1, 1)}, {}); },
               ErrorKind::kData),
      HasSubstr("model.norm.bias@exp_avg_sq"));
  EXPECT_EQ(fs.files(), before);
}

TEST(Reshard, AFullDiskLeavesNothing) {
  MemoryFs fs;
  save_run(fs, "source", model_run("gpt", GridShape(), 1), 1);
  const auto before = fs.files();
  const auto act = [&] { reshard_checkpoint(fs, "source", "made", {GridShape(2, 1, 1, 1)}, {}); };
  fs.reported_free = 1000;
  EXPECT_THAT(error_of(act, ErrorKind::kData), HasSubstr("free "));
  EXPECT_EQ(fs.files(), before);
  fs.reported_free = -1;
  fs.full_at = fs.operations() + 20;
  EXPECT_THAT(error_of(act, ErrorKind::kData), HasSubstr("made"));
  EXPECT_EQ(fs.files(), before);
  EXPECT_EQ(fs.open_files(), 0);
  EXPECT_EQ(error_of(act, ErrorKind::kData), "");
}

TEST(Diff, NamesWhatDiffers) {
  MemoryFs fs;
  save_run(fs, "a", model_run("gpt", GridShape(), 1), 1);
  save_run(fs, "b", model_run("gpt", GridShape(2, 1, 1, 1), 0), 1);
  EXPECT_THAT(checkpoint_diff(fs, "a", "b").value().text, HasSubstr("equal: "));
  save_run(fs, "other", model_run("gpt", GridShape(), 1), 2);
  const DiffReport other = checkpoint_diff(fs, "a", "other").value();
  EXPECT_FALSE(other.equal);
  EXPECT_THAT(other.text, HasSubstr("model.norm.weight@master: 30 of 30 elements, max |a-b| "));
  EXPECT_THAT(other.text, HasSubstr("0 scalars and "));
  save_run(fs, "bf16", model_run("gpt", GridShape(), 1, {"train.precision=bf16"}), 1);
  EXPECT_THAT(checkpoint_diff(fs, "a", "bf16").value().text,
              HasSubstr("model.norm.weight@weight is only in b"));
  EXPECT_THAT(checkpoint_diff(fs, "bf16", "a").value().text,
              HasSubstr("model.norm.weight@weight is only in a"));
  save_run(fs, "longer", model_run("gpt", GridShape(), 1, {"model.seq_len=10"}), 1);
  EXPECT_THAT(checkpoint_diff(fs, "a", "longer").value().text,
              HasSubstr("model.embed_positions.weight@master: F32 [0:9,0:30] and F32 [0:10,0:30]"));
  EXPECT_EQ(checkpoint_diff(fs, "a", "none").error().kind(), ErrorKind::kData);
}

TEST(Diff, MeasuresTheDifference) {
  MemoryFs fs;
  const RunSpec run = model_run("gpt", GridShape(), 1);
  const auto save = [&](const std::string& dir, float value, const char* lr) {
    const auto world = make_solo();
    ModelState state(run, 0, 1);
    auto* first = static_cast<float*>(state.tensors().back().data);  // model.norm.bias, exp_avg_sq.
    for (int i = 0; i < 30; ++i) first[i] = i == 0 ? 3 : 0;
    first[1] = value;
    CheckpointMeta meta = test_meta(7);
    meta.scalars["lr"] = lr;
    CheckpointStore(fs, dir + "/checkpoints").save(*world, meta, state.tensors()).value();
  };
  save("a", 4, "1");
  save("b", 4.5, "2");
  save("nan", std::numeric_limits<float>::quiet_NaN(), "1");
  const std::string text = checkpoint_diff(fs, "a", "b").value().text;
  EXPECT_THAT(text, HasSubstr("  lr: 1 and 2\n  model.norm.bias@exp_avg_sq: 1 of 30 elements, max "
                              "|a-b| 0.5, relative L2 0.1\n1 scalars and 1 tensors differ"));
  EXPECT_THAT(checkpoint_diff(fs, "a", "nan").value().text, HasSubstr("max |a-b| nan"));
}

TEST(CheckpointPlan, EqualsWhatIsSaved) {
  for (const char* precision : {"fp32", "bf16"}) {
    MemoryFs fs;
    const RunSpec run =
        model_run("llama", GridShape(2, 1, 2, 1), 1, {std::string("train.precision=") + precision});
    save_run(fs, "run", run, 1);
    std::int64_t bytes = 0;
    for (const ManifestTensor& t : find_checkpoint(fs, "run").value().manifest.tensors) {
      bytes += Region::whole(t.shape).elements() * dtype_size(t.dtype);
    }
    EXPECT_EQ(bytes, checkpoint_bytes(run.model, run.train.precision).total());
  }
}

}  // namespace
}  // namespace fourfold
