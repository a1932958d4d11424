// The tasks of a step, as planned, against the timeline of real steps: the same computations and
// collectives of the same sizes in the same order, in the main thread and in every lane, and waits
// where they were planned. The network is slow, so that what is waited for is seldom over.
#include "policy/step_program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/emulated_network.h"
#include "comm/thread_world.h"
#include "device/intra_op_threads.h"
#include "tests/train/test_models.h"
#include "train/rank_model.h"

namespace fourfold {
namespace {

using Tracks = std::map<std::string, std::vector<std::string>>;

constexpr char kWait[] = "wait for ";
constexpr double kLatency = 1e-4;  // Seconds.

std::string line_of(const std::string& name, std::int64_t bytes) {
  return bytes == 0 ? name : name + ", " + std::to_string(bytes) + " B";
}

Tracks planned(const RunSpec& run) {
  const StepProgram program = step_program(run, 2);
  Tracks tracks;
  std::map<int, std::string> names;
  for (const StepTask& task : program.tasks) {
    if (task.kind == StepTask::Kind::kWait) {
      tracks["main"].push_back(kWait + names.at(task.collective));
      continue;
    }
    if (task.kind == StepTask::Kind::kCollective) names[task.collective] = task.name;
    std::string track(task_lane_name(task.lane));
    if (task.lane != TaskLane::kCaller) track += " " + task.group;
    tracks[track].push_back(line_of(task.name, task.bytes));
  }
  return tracks;
}

Tracks real(const RunSpec& run) {
  std::vector<TimelineSpan> spans;
  CommOptions slow;
  const EmulatedNetwork::Link link{1e10, kLatency};
  slow.network = std::make_shared<EmulatedNetwork>(EmulatedNetwork{1, link, link});
  run_thread_ranks(run.parallel.grid.size(), slow, [&](Communicator& world) {
    set_intra_op_threads(1);
    const auto samples = [&](std::int64_t sample, std::int64_t* inputs, std::int64_t* targets) {
      for (int i = 0; i < run.train.seq_len; ++i) inputs[i] = targets[i] = (sample + i) % 37;
    };
    {
      RankModel model(run, world);
      if (world.rank() == 0) world.timeline().start();
      model.train_step(0, 0, samples);
      model.train_step(1, run.train.global_batch, samples);
    }  // What is still in the lanes ends with it.
    if (world.rank() == 0) spans = world.timeline().stop();
  });
  std::ranges::stable_sort(spans, {}, &TimelineSpan::begin);
  Tracks tracks;
  for (const TimelineSpan& span : spans) {
    if (span.kind == TimelineSpan::Kind::kWait) tracks[span.track].push_back(kWait + span.name);
    if (span.kind != TimelineSpan::Kind::kCompute &&
        span.kind != TimelineSpan::Kind::kCommunicate) {
      continue;
    }
    tracks[span.track].push_back(line_of(span.name, span.bytes));
  }
  return tracks;
}

/// Planned tasks without the waits for what was already over.
std::vector<std::string> without_short_waits(const std::vector<std::string>& told,
                                             const std::vector<std::string>& ran) {
  std::vector<std::string> lines;
  for (const std::string& line : told) {
    const bool happened = lines.size() < ran.size() && ran[lines.size()] == line;
    if (happened || !line.starts_with(kWait)) lines.push_back(line);
  }
  return lines;
}

void expect_planned(const RunSpec& run) {
  const Tracks expected = real(run), told = planned(run);
  for (const auto& [track, lines] : expected) {
    const auto found = told.find(track);
    ASSERT_NE(found, told.end()) << track;
    const std::vector<std::string> plan = without_short_waits(found->second, lines);
    const auto [a, b] = std::ranges::mismatch(lines, plan);
    const auto at = a - lines.begin();
    ASSERT_TRUE(a == lines.end() && b == plan.end())
        << track << ", task " << at << ": ran " << (a == lines.end() ? "nothing" : *a)
        << ", planned " << (b == plan.end() ? "nothing" : *b) << "; before it "
        << (at > 0 ? lines[static_cast<std::size_t>(at - 1)] : "nothing");
  }
  EXPECT_EQ(expected.size(), told.size());
}

RunSpec run_on(const ModelSpec& model, const GridShape& grid, int accumulation) {
  RunSpec run = testing::run_of(model, 12);
  run.parallel.grid = grid;
  run.train.micro_batch = 12 / (grid.z * grid.data * accumulation);
  return run;
}

constexpr OverlapSpec kNone{.all_reduce = false,
                            .reduce_scatter = false,
                            .all_gather = false,
                            .data_reduce = false,
                            .data_gather = false};

TEST(StepProgram, IsWhatRuns) {
  ModelSpec gpt = testing::tiny_gpt(), llama = testing::tiny_llama();
  gpt.dropout = 0.1;
  llama.qk_norm = QkNorm::kWhole;
  llama.bias = true;
  for (const ModelSpec& model : {gpt, llama}) {
    for (const GridShape& grid :
         {GridShape(1, 1, 1, 1), GridShape(3, 2, 1, 1), GridShape(1, 2, 2, 1),
          GridShape(3, 1, 2, 1), GridShape(1, 1, 2, 3), GridShape(3, 1, 1, 2)}) {
      for (const OverlapSpec& overlap :
           {kNone, OverlapSpec(), OverlapSpec{.prefetch_depth = 3, .cache_layers = 1},
            OverlapSpec{.slices = 2}, OverlapSpec{.slices = 2, .sequence_parallel = true},
            OverlapSpec{.sequence_parallel = true, .sp_regather = false}}) {
        RunSpec run = run_on(model, grid, grid.z * grid.data == 1 ? 2 : 1);
        run.overlap = overlap;
        SCOPED_TRACE(::testing::Message()
                     << model.family << " on " << grid.name() << ", slices " << overlap.slices
                     << ", ahead " << overlap.all_gather << " by " << overlap.prefetch_depth
                     << ", cut " << overlap.sequence_parallel);
        expect_planned(run);
      }
    }
  }
}

TEST(StepProgram, KnowsRecomputeAndWhatTravelsHow) {
  ModelSpec llama = testing::tiny_llama();
  llama.kv_heads = 1;
  for (const Recompute recompute : {Recompute::kAttention, Recompute::kMlp, Recompute::kFull}) {
    for (const bool keeps : {false, true}) {
      for (const GridShape& grid : {GridShape(3, 2, 1, 1), GridShape(2, 1, 2, 1)}) {
        RunSpec run = run_on(llama, grid, 1);
        run.memory.recompute = recompute;
        run.overlap.keep_collectives = keeps;
        SCOPED_TRACE(::testing::Message() << grid.name() << ", recompute "
                                          << static_cast<int>(recompute) << ", keeps " << keeps);
        expect_planned(run);
        run.overlap.sequence_parallel = true;
        run.overlap.sp_regather = keeps;
        expect_planned(run);
      }
    }
  }
  RunSpec run = run_on(testing::tiny_llama(), {1, 1, 2, 3}, 2);
  run.train.precision = Precision::kBf16;
  run.overlap.grad_dtype = WireType::kBf16;
  expect_planned(run);
  run.memory.zero = 0;
  expect_planned(run);
}

TEST(StepProgram, KnowsBothLayoutsOfTheHead) {
  for (const bool tied : {true, false}) {
    ModelSpec model = testing::tiny_gpt();
    model.tie_embeddings = tied;
    model.vocab = 1501;
    // Its table is too large to be packed over data.
    for (const GridShape& grid :
         {GridShape(1, 2, 1, 1), GridShape(2, 3, 1, 1), GridShape(1, 1, 1, 2)}) {
      SCOPED_TRACE(grid.name() + (tied ? ", tied" : ""));
      expect_planned(run_on(model, grid, 1));
    }
  }
}

}  // namespace
}  // namespace fourfold
