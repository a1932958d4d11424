// Interrupted equals uninterrupted: the same bits on the same grid, the same state on any other.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "ckpt/store.h"
#include "comm/thread_world.h"
#include "device/intra_op_threads.h"
#include "kernels/tile_product.h"
#include "tests/train/moe_runs.h"

namespace fourfold {
namespace {

constexpr std::int64_t kSteps = 10;

std::string new_folder(const char* name) {
  const auto dir = std::filesystem::temp_directory_path() /
                   (std::string("fourfold-resume-") + name + "-" + std::to_string(getpid()));
  std::filesystem::remove_all(dir);
  return dir.string();
}

CheckpointMeta meta_at(const RunSpec& run, std::int64_t step, std::int64_t updates) {
  CheckpointMeta meta;
  meta.step = Step(step);
  meta.grid = run.parallel.grid;
  meta.next_sample = step * run.train.global_batch;
  meta.scalars["updates"] = std::to_string(updates);
  return meta;
}

std::string folder_of(std::int64_t step) { return CheckpointId{Step(step)}.folder(); }

/// All bytes that a rank holds.
std::string bytes_of(RankModel& model) {
  std::string bytes;
  for (const StateTensor& t : model.state()) {
    bytes.append(static_cast<const char*>(t.data), t.region.elements() * dtype_size(t.dtype));
  }
  return bytes;
}

struct Trace {
  std::vector<double> losses;
  std::vector<std::string> state;  ///< By rank.
};

/// Trains steps [from, kSteps), from the checkpoint of `from` if that is not 0, saving at
/// `save_at`.
Trace train(const RunSpec& run, const std::string& dir, std::int64_t from, std::int64_t save_at) {
  Trace trace;
  trace.state.resize(run.parallel.grid.size());
  PosixFs fs;
  run_thread_ranks(run.parallel.grid.size(), {}, [&](Communicator& world) {
    set_intra_op_threads(1);
    RankModel model(run, world);
    CheckpointStore store(fs, dir);
    if (from > 0) {
      auto state = model.state();
      const Loaded loaded = store.load(world, folder_of(from), state).value();
      model.restored(state, std::stoll(loaded.meta.scalars.at("updates")));
    }
    for (std::int64_t step = from; step < kSteps; ++step) {
      const StepResult r =
          model.train_step(step, step * run.train.global_batch, random_samples(run));
      if (world.rank() == 0) trace.losses.push_back(r.loss);
      if (save_at < 0 || step + 1 == save_at) {
        store.save(world, meta_at(run, step + 1, model.updates()), model.state()).value();
      }
    }
    trace.state[world.rank()] = bytes_of(model);
  });
  return trace;
}

RunSpec small_run(Precision precision, GridShape grid, int accumulation) {
  ModelSpec model = testing::tiny_gpt();
  model.dropout = 0.1;
  RunSpec run = testing::run_of(model, 12);
  run.train.precision = precision;
  return with_grid(run, grid, accumulation);
}

void expect_exact_resume(const RunSpec& run, const char* name) {
  const std::string dir = new_folder(name);
  const Trace whole = train(run, dir, 0, -1);
  for (std::int64_t from = 1; from < kSteps; ++from) {
    const Trace rest = train(run, dir, from, 0);
    EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + from, whole.losses.end()));
    EXPECT_TRUE(rest.state == whole.state) << "resumed at step " << from;
  }
  std::filesystem::remove_all(dir);
}

TEST(Resume, IsExactAtEveryStep) {
  expect_exact_resume(small_run(Precision::kFp32, {2, 1, 2, 1}, 1), "fp32");
}

TEST(Resume, IsExactInBf16WithZeroAndAccumulation) {
  expect_exact_resume(small_run(Precision::kBf16, {1, 2, 1, 2}, 3), "bf16");
}

TEST(Resume, IsExactInThreeProducts) {
  if (!kernels::has_tile_product()) GTEST_SKIP() << "needs a CPU with AMX for bf16";
  expect_exact_resume(small_run(Precision::kFp32x3, {1, 1, 2, 1}, 1), "fp32x3");
}

/// Every tensor of a run, whole, gathered from its ranks.
using WholeState = std::map<std::string, std::vector<char>>;

WholeState whole_state(const std::string& dir, const RunSpec& run, std::int64_t step) {
  RunSpec one = with_grid(run, GridShape(1, 1, 1, 1), 1);
  one.parallel.expert = 1;
  const auto solo = make_solo();
  PosixFs fs;
  RankModel model(one, *solo);
  auto state = model.state();
  CheckpointStore(fs, dir).load(*solo, folder_of(step), state).value();
  WholeState whole;
  for (const StateTensor& t : state) {
    const char* data = static_cast<const char*>(t.data);
    whole[t.key()].assign(data, data + t.region.elements() * dtype_size(t.dtype));
  }
  return whole;
}

/// The first tensor of a rank that is not its part of the whole; "" for none.
std::string difference(const WholeState& whole, std::span<const StateTensor> state) {
  for (const StateTensor& t : state) {
    std::vector<char> part(t.region.elements() * dtype_size(t.dtype));
    copy_region(t.region, Region::whole(t.shape), whole.at(t.key()).data(), t.region, part.data(),
                dtype_size(t.dtype));
    if (std::memcmp(part.data(), t.data, part.size()) != 0) return t.key() + t.region.name();
  }
  return "";
}

TEST(Resume, StateIsTheSameOnAnotherGrid) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const std::string dir = new_folder("grids");
    const RunSpec saver = small_run(precision, {2, 2, 1, 1}, 1);
    train(saver, dir, 0, 5);
    const WholeState whole = whole_state(dir, saver, 5);
    const RunSpec loader = small_run(precision, {1, 3, 1, 2}, 1);
    PosixFs fs;
    run_thread_ranks(6, {}, [&](Communicator& world) {
      RankModel model(loader, world);
      auto state = model.state();
      CheckpointStore(fs, dir).load(world, folder_of(5), state).value();
      EXPECT_EQ(difference(whole, state), "") << "on rank " << world.rank();
    });
    std::filesystem::remove_all(dir);
  }
}

/// Fewer key/value heads than ranks over x share parts of their weights, in another way on each
/// grid.
TEST(Resume, SharedKeyValueHeadsMoveBetweenGrids) {
  const RunSpec run = testing::run_of(testing::tiny_llama(), 12);
  const std::vector<GridShape> grids = {{1, 1, 1, 1}, {6, 1, 1, 1}, {3, 1, 2, 1}};
  for (const GridShape& from : grids) {
    const std::string dir = new_folder("shared-heads");
    const RunSpec saver = with_grid(run, from, 1);
    train(saver, dir, 0, kSteps);
    const WholeState whole = whole_state(dir, saver, kSteps);
    for (const GridShape& to : grids) {
      const RunSpec loader = with_grid(run, to, 1);
      PosixFs fs;
      run_thread_ranks(to.size(), {}, [&](Communicator& world) {
        RankModel model(loader, world);
        auto state = model.state();
        CheckpointStore(fs, dir).load(world, folder_of(kSteps), state).value();
        EXPECT_EQ(difference(whole, state), "") << from.name() << " to " << to.name();
      });
    }
    std::filesystem::remove_all(dir);
  }
}

TEST(Resume, AnFp32CheckpointStartsABf16Run) {
  const std::string dir = new_folder("precision");
  train(small_run(Precision::kFp32, {2, 1, 1, 1}, 1), dir, 0, 5);
  PosixFs fs;
  run_thread_ranks(2, {}, [&](Communicator& world) {
    const RunSpec run = small_run(Precision::kBf16, {1, 1, 2, 1}, 1);
    RankModel model(run, world);
    auto state = model.state();
    CheckpointStore(fs, dir).load(world, folder_of(5), state).value();
    model.restored(state, 5);
    for (Parameter* p : model.model().parameters()) {
      EXPECT_TRUE(p->updated_weight().equal(p->master.to(at::kBFloat16))) << p->spec.name;
    }
  });
  std::filesystem::remove_all(dir);
}

TEST(Resume, AWeightThatIsNotItsMasterIsRefused) {
  const RunSpec run = small_run(Precision::kBf16, {1, 1, 1, 1}, 1);
  const auto solo = make_solo();
  RankModel model(run, *solo);
  auto state = model.state();
  for (StateTensor& t : state) t.loaded = true;
  model.restored(state, 0);
  model.model().parameters()[3]->weight.add_(1);
  EXPECT_THROW(model.restored(state, 0), Error);
}

/// Each saves, each loads what each saved: the same bits, and then the same training to the
/// tolerance of sums in another order.
TEST(Resume, TenGridsEachToEach) {
  constexpr std::int64_t kSaved = kSteps - 2;
  const std::vector<GridShape> grids = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1},
                                        {1, 1, 1, 2}, {2, 2, 1, 1}, {1, 3, 1, 2}, {2, 1, 2, 1},
                                        {1, 1, 3, 2}, {3, 1, 1, 2}};
  std::vector<RunSpec> runs;
  for (const GridShape& grid : grids) {
    runs.push_back(small_run(Precision::kFp32, grid, 1));
    runs.back().memory.zero = static_cast<int>(runs.size() % 3 != 0);
  }
  for (const RunSpec& saver : runs) {
    const std::string dir = new_folder("ten-grids");
    const Trace trained = train(saver, dir, 0, kSaved);
    const WholeState whole = whole_state(dir, saver, kSaved);
    for (const RunSpec& loader : runs) {
      const std::string what = saver.parallel.grid.name() + " to " + loader.parallel.grid.name();
      PosixFs fs;
      run_thread_ranks(loader.parallel.grid.size(), {}, [&](Communicator& world) {
        set_intra_op_threads(1);
        RankModel model(loader, world);
        auto state = model.state();
        const Loaded loaded =
            CheckpointStore(fs, dir).load(world, folder_of(kSaved), state).value();
        EXPECT_EQ(difference(whole, state), "") << what;
        EXPECT_EQ(loaded.meta.next_sample, kSaved * loader.train.global_batch);
        model.restored(state, std::stoll(loaded.meta.scalars.at("updates")));
        for (std::int64_t step = kSaved; step < kSteps; ++step) {
          const StepResult r =
              model.train_step(step, step * loader.train.global_batch, random_samples(loader));
          EXPECT_NEAR(r.loss, trained.losses[static_cast<std::size_t>(step)], 2e-5) << what;
        }
      });
    }
    std::filesystem::remove_all(dir);
  }
}

RunSpec expert_run(const testing::ExpertCase& c, Balance balance) {
  RunSpec run = testing::run_of(testing::with_experts(testing::tiny_gpt()), 12);
  run.model.moe.balance = balance;
  run.model.moe.balance_scope = BalanceScope::kStep;
  run.model.moe.aux_coef = 0.3;  // That a lost state of the routers is seen.
  run.model.moe.bias_rate = 0.02;
  return testing::on(run, c);
}

TEST(Resume, IsExactWithExperts) {
  expect_exact_resume(expert_run({{2, 1, 2, 1}, 2, 1}, Balance::kLossFree), "loss-free");
  RunSpec run = expert_run({{1, 1, 2, 2}, 4, 3}, Balance::kAuxLoss);
  run.train.precision = Precision::kBf16;
  expect_exact_resume(run, "aux-loss");
}

/// Saved by each number of ranks over experts, loaded by each: the same state, of the routers too,
/// and then the same training.
TEST(Resume, ExpertsMoveBetweenGrids) {
  constexpr std::int64_t kSaved = kSteps - 2;
  const std::vector<testing::ExpertCase> cases{
      {{2, 1, 2, 1}, 2}, {{1, 1, 2, 2}, 4}, {{1, 2, 1, 2}, 1}, {{1, 1, 4, 1}, 2}};
  std::vector<RunSpec> runs;
  for (const testing::ExpertCase& c : cases) {
    runs.push_back(expert_run(c, Balance::kLossFree));
    runs.back().memory.zero = static_cast<int>(runs.size() % 2);
    if (c.expert == 4) runs.back().parallel.expert_placement = ExpertPlacement::kInterleaved;
  }
  for (std::size_t from = 0; from < runs.size(); ++from) {
    const std::string dir = new_folder("experts");
    const Trace trained = train(runs[from], dir, 0, kSaved);
    const WholeState whole = whole_state(dir, runs[from], kSaved);
    const auto& bias = whole.at("model.layers.1.mlp.gate.e_score_correction_bias@value");
    EXPECT_NE(bias, std::vector<char>(bias.size()));
    for (std::size_t to = 0; to < runs.size(); ++to) {
      const std::string what = cases[from].name() + " to " + cases[to].name();
      PosixFs fs;
      run_thread_ranks(runs[to].parallel.grid.size(), {}, [&](Communicator& world) {
        set_intra_op_threads(1);
        RankModel model(runs[to], world);
        auto state = model.state();
        CheckpointStore(fs, dir).load(world, folder_of(kSaved), state).value();
        EXPECT_EQ(difference(whole, state), "") << what;
        model.restored(state, kSaved);
        for (std::int64_t step = kSaved; step < kSteps; ++step) {
          const StepResult r =
              model.train_step(step, step * runs[to].train.global_batch, random_samples(runs[to]));
          EXPECT_NEAR(r.loss, trained.losses[static_cast<std::size_t>(step)], 2e-5) << what;
        }
      });
    }
    std::filesystem::remove_all(dir);
  }
}

TEST(Resume, GoesOnWithinToleranceOnAnotherGrid) {
  const std::string dir = new_folder("onward");
  const RunSpec saver = small_run(Precision::kFp32, {2, 2, 1, 1}, 1);
  const Trace whole = train(saver, dir, 0, 5);
  const Trace rest = train(small_run(Precision::kFp32, {1, 3, 1, 2}, 2), dir, 5, 0);
  ASSERT_EQ(rest.losses.size(), 5u);
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(rest.losses[i], whole.losses[5 + i], 2e-5);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace fourfold
