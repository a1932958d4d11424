#include "policy/step_program.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "base/async.h"
#include "base/error.h"
#include "base/exact_sum.h"
#include "layout/grid.h"
#include "policy/head_layout.h"
#include "policy/model_layers.h"
#include "policy/overlap_plan.h"
#include "policy/recompute.h"
#include "policy/step_parts.h"
#include "policy/step_writer.h"

namespace fourfold {
namespace {

constexpr std::int64_t kF32 = 4;
// Named, as GCC 12 takes no initializer list inside of a coroutine.
constexpr AxisSet kOverX{Axis::kX}, kOverY{Axis::kY}, kOverRows{Axis::kZ, Axis::kData};
constexpr KeptActivations kNothing{.qkv = false, .attention = false};

/// A model's passes as tasks, in the words of the runtime's: model/transformer.cc, block.cc,
/// attention.cc, mlp.cc, and the layers of parallel/. Each slice is a coroutine here as there.
class Program {
 public:
  explicit Program(const RunSpec& run)
      : run_(run),
        grid_(run.parallel.grid, run.parallel.order),
        shape_(run.parallel.grid),
        layers_(model_layers_of(run)),
        kept_(kept_by_block(run)),
        compute_bytes_(run.train.precision == Precision::kBf16 ? 2 : kF32),
        samples_(run.train.micro_batch),
        slices_(static_cast<int>(std::min<std::int64_t>(run.overlap.slices, samples_))),
        plan_(overlap_plan(layers_, kept_)),
        parts_(layers_, grid_) {}

  StepProgram write(int steps) {
    StepWriter writer(run_, parts_.units());
    w_ = &writer;
    for (int i = 0; i < steps; ++i) step();
    return writer.take();
  }

 private:
  // --- Sizes.

  /// Of each slice: rows, and those of the residual stream.
  std::int64_t rows(int slice) const {
    return split_range(samples_, slices_, slice).size() * run_.train.seq_len;
  }
  std::int64_t stream_rows(int slice) const {
    return split_range(rows(slice), layers_.rows_over_x ? shape_.x : 1, 0).size();
  }
  std::int64_t hidden() const { return parts_.blocks().front().qkv.in; }
  /// Of all rows of the residual stream, as wide as it is here.
  std::int64_t stream_bytes(int slice) const { return rows(slice) * hidden() * compute_bytes_; }

  // --- The collectives that passes wait for, and give their turn away at.

  Async<void> finished(int collective) {
    co_await StandStill([this, collective] { w_->wait(collective); });
  }
  Async<void> all_reduce(AxisSet axes, std::int64_t bytes) {
    co_await finished(w_->collective("all_reduce", axes, bytes, w_->forward_lane()));
  }
  /// StreamRows::sum of something as wide as the stream.
  Async<void> sum_stream(int slice, bool is_cut) {
    const char* operation = is_cut ? "reduce_scatter" : "all_reduce";
    co_await finished(w_->collective(operation, kOverX, stream_bytes(slice), w_->forward_lane()));
  }
  /// StreamRows::gather; without a turn where nothing is cut.
  Async<void> gather_stream(int slice) {
    if (!layers_.rows_over_x) co_return;
    co_await finished(
        w_->collective("all_gather", kOverX, stream_bytes(slice), w_->forward_lane()));
  }

  // --- Layers.

  Async<void> norm(int slice) {
    if (shape_.y > 1) {
      const bool centred = layers_.final_norm.centred;
      w_->compute("norm statistics");
      const char* operation = centred ? "all_gather" : "all_reduce";
      const std::int64_t bytes = stream_rows(slice) * kF32 * (centred ? 2 * shape_.y : 1);
      co_await finished(w_->collective(operation, kOverY, bytes, w_->forward_lane()));
    }
    w_->compute("norm");
  }
  Async<void> norm_backward(int slice) {
    if (shape_.y > 1) {
      w_->compute("norm backward sums");
      co_await all_reduce(kOverY, 2 * stream_rows(slice) * kF32);
    }
    w_->compute("norm backward");
  }

  Async<void> forward(const StepParts::Linear& linear, int slice) {
    w_->gather(*linear.matrix);
    w_->compute("forward " + linear.matrix->name);
    if (input_axis(linear.orientation) == Axis::kX) {
      co_await sum_stream(slice, linear.rows_over_x);
    } else {
      co_await all_reduce(kOverY, rows(slice) * linear.out * compute_bytes_);
    }
  }
  void weight_gradient(const StepParts::Linear& linear) {
    w_->compute("dW " + linear.matrix->name);
    w_->scatter(*linear.matrix);
  }
  Async<void> backward(const StepParts::Linear& linear, int slice) {
    const bool normal = linear.orientation == Orientation::kNormal;
    w_->gather(*linear.matrix);
    if (!normal) co_await gather_stream(slice);
    const bool sums = shape_[output_axis(linear.orientation)] > 1;
    if (!sums) weight_gradient(linear);
    int input = -1;
    if (normal && linear.rows_over_x && run_.overlap.sp_regather) {
      input = w_->collective("all_gather", kOverX, stream_bytes(slice), w_->reduce_lane());
    }
    w_->compute("dI " + linear.matrix->name);
    const char* operation = normal && linear.rows_over_x ? "reduce_scatter" : "all_reduce";
    const int sum = w_->collective(operation, normal ? kOverX : kOverY,
                                   rows(slice) * linear.in * compute_bytes_, w_->reduce_lane());
    if (sums) {
      w_->wait(input);
      weight_gradient(linear);
    }
    co_await finished(sum);
  }

  /// `reduces`: statistics, or the sums of backward, are not known yet.
  Async<void> qk_norm(const BlockLayers& layers, int slice, const char* name, bool reduces) {
    if (!layers.qk_norm) co_return;
    if (reduces && layers.qk_norm->whole && shape_.x > 1) {
      w_->compute(name);
      co_await all_reduce(kOverX, 2 * rows(slice) * kF32);
    }
    w_->compute(name);
  }

  // --- A block.

  Async<void> attention(std::size_t i, int slice, const KeptActivations& kept, bool again) {
    if (!kept.qkv) {
      co_await forward(parts_.blocks()[i].qkv, slice);
      co_await qk_norm(layers_.blocks[i], slice, "norm of heads", !again);
    }
    if (!kept.attention) w_->compute("attention");
  }
  Async<void> block_forward(std::size_t i, int slice) {
    co_await norm(slice);
    co_await gather_stream(slice);
    co_await attention(i, slice, kNothing, false);
    co_await forward(parts_.blocks()[i].projection, slice);
    w_->compute("residual");
    co_await norm(slice);
    co_await gather_stream(slice);
    co_await forward(parts_.blocks()[i].up, slice);
    w_->compute("activation");
    co_await forward(parts_.blocks()[i].down, slice);
    w_->compute("residual");
  }
  Async<void> block_restore(std::size_t i, int slice) {
    const KeptActivations& kept = kept_[i];
    // Whole inputs that were kept need no collective.
    const bool keeps_whole = !run_.overlap.sp_regather;
    if (!kept.attention_input) w_->compute("norm");
    if (!kept.qkv && !(kept.attention_input && keeps_whole)) co_await gather_stream(slice);
    co_await attention(i, slice, kept, true);
    if (!kept.middle) {
      co_await forward(parts_.blocks()[i].projection, slice);
      w_->compute("residual");
    }
    if (!kept.mlp_input) w_->compute("norm");
    if (!kept.up) {
      if (!(kept.mlp_input && keeps_whole)) co_await gather_stream(slice);
      co_await forward(parts_.blocks()[i].up, slice);
    }
    if (!kept.mlp) w_->compute("activation");
  }
  Async<void> block_backward(std::size_t i, int slice) {
    const StepParts::Block& block = parts_.blocks()[i];
    w_->compute("residual backward");
    co_await backward(block.down, slice);
    w_->compute("activation backward");
    co_await backward(block.up, slice);
    co_await norm_backward(slice);
    w_->compute("residual backward");
    co_await backward(block.projection, slice);
    w_->compute("attention backward");
    co_await qk_norm(layers_.blocks[i], slice, "norm of heads backward", true);
    co_await backward(block.qkv, slice);
    co_await norm_backward(slice);
  }

  // --- The head and the loss, whose own collectives are the caller's.

  void caller(const char* operation, AxisSet axes, std::int64_t bytes) {
    w_->collective(operation, axes, bytes, TaskLane::kCaller);
  }
  void head_chunk(std::int64_t rows, std::int64_t vocabulary) {
    const bool gathers = layers_.head_layout == HeadLayout::kGatherHidden;
    const AxisSet shards = vocabulary_axes(layers_.head_layout);
    w_->compute("forward " + parts_.head().name);
    if (!gathers) caller("all_reduce", kOverY, rows * vocabulary * compute_bytes_);
    w_->compute("loss");
    caller("all_reduce", shards, rows * kF32);
    w_->compute("loss");
    caller("all_reduce", shards, 2 * rows * kF32);
    w_->compute("loss gradient");
    w_->compute("dI " + parts_.head().name);
    w_->compute("dW " + parts_.head().name);
  }
  Async<void> head(int slice) {
    w_->settle(parts_.units().size() - 1);
    co_await norm(slice);
    co_await gather_stream(slice);
    const bool gathers = layers_.head_layout == HeadLayout::kGatherHidden;
    const std::int64_t rows = this->rows(slice), width = run_.model.hidden;
    if (gathers) caller("all_gather", kOverY, rows * width * compute_bytes_);
    w_->gather(parts_.head());
    const ParameterSpec table = token_table_spec(layers_.embedding);
    const ParameterSpec& spec = layers_.head ? *layers_.head : table;
    std::int64_t vocabulary = spec.layout.block(grid_, Coords{}).dims[0].size();
    const std::int64_t block = parts_.head().members.front();
    std::int64_t exchanged = 0;  // Elements, in and out of the exchange over y of tied weights.
    if (gathers && !layers_.head) {
      vocabulary = split_range(vocabulary, shape_.y, 0).size();
      exchanged = std::max(block, vocabulary * width);
      caller("all_to_all", kOverY, exchanged * compute_bytes_);
    }
    const std::int64_t chunk =
        logits_chunk_rows(shape_, layers_.head_layout, run_.model.vocab, compute_bytes_);
    for (std::int64_t begin = 0; begin < rows; begin += chunk) {
      head_chunk(std::min(chunk, rows - begin), vocabulary);
    }
    if (exchanged > 0) caller("all_to_all", kOverY, exchanged * kF32);
    w_->scatter(parts_.head());
    if (gathers) caller("reduce_scatter", kOverY, rows * width * compute_bytes_);
    co_await sum_stream(slice, layers_.rows_over_x);
    co_await norm_backward(slice);
  }

  // --- A step.

  Async<void> pass(int slice, bool sums) {
    const auto past = [&](std::size_t unit) {
      if (sums && slice + 1 == slices_) w_->passed(unit);
    };
    w_->gather(parts_.table());
    w_->compute("embedding");
    co_await sum_stream(slice, layers_.rows_over_x);
    if (parts_.positions()) {
      w_->gather(*parts_.positions());
      w_->compute("embedding");
    }
    for (std::size_t i = 0; i < parts_.blocks().size(); ++i) {
      w_->settle(i + 1);
      co_await block_forward(i, slice);
    }
    co_await head(slice);
    past(parts_.units().size() - 1);
    for (std::size_t i = parts_.blocks().size(); i-- > 0;) {
      co_await block_restore(i, slice);
      co_await block_backward(i, slice);
      past(i + 1);
    }
    co_await gather_stream(slice);
    w_->compute("embedding backward");
    w_->scatter(parts_.table());
    if (parts_.positions()) {
      w_->compute("embedding backward");
      w_->scatter(*parts_.positions());
    }
    past(0);
  }

  void step() {
    w_->begin_step();
    const std::int64_t batches = run_.accumulation();
    for (std::int64_t i = 0; i < batches; ++i) {
      std::vector<const ProgramMatrix*> order;
      for (const std::string& name : plan_.step) order.push_back(&parts_.matrix(name));
      w_->begin_pass(std::move(order), slices_);
      std::deque<AsyncRun<void>> passes;
      for (int slice = 0; slice < slices_; ++slice) {
        passes.emplace_back(pass(slice, i + 1 == batches));
      }
      while (one_turn(passes)) {
      }
    }
    w_->finish_sums();
    caller("all_reduce", kOverRows, sizeof(double));
    w_->compute("gradient norm");
    caller("all_reduce", kWorldAxes, ExactSum::kWords * sizeof(std::int64_t));
    for (std::size_t unit = 0; unit < parts_.units().size(); ++unit) {
      w_->compute("update");
      w_->spread(unit);
    }
  }

  const RunSpec& run_;
  const Grid grid_;
  const GridShape shape_;
  const ModelLayers layers_;
  const std::vector<KeptActivations> kept_;
  const std::int64_t compute_bytes_, samples_;
  const int slices_;
  const OverlapPlan plan_;

  const StepParts parts_;
  StepWriter* w_ = nullptr;
};

}  // namespace

std::string_view task_lane_name(TaskLane lane) {
  switch (lane) {
    case TaskLane::kCaller:
      return "main";
    case TaskLane::kGather:
      return "gather";
    case TaskLane::kScatter:
      return "scatter";
    case TaskLane::kReduce:
      return "reduce";
  }
  return "";
}

StepProgram step_program(const RunSpec& run, int steps) {
  if (run.model.moe.experts > 0) {
    throw Error(ErrorKind::kUsage, "the tasks of a model with experts are not known beforehand",
                "how many tokens go where, its routers decide; try a dense model");
  }
  return Program(run).write(steps);
}

}  // namespace fourfold
