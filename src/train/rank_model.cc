#include "train/rank_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "kernels/cross_entropy.h"
#include "kernels/tile_product.h"
#include "optim/adamw.h"
#include "optim/schedule.h"
#include "parallel/gradient_sync.h"
#include "policy/head_layout.h"
#include "policy/held_region.h"

namespace fourfold {
namespace {

Schedule::Kind schedule_kind(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kConstant:
      return Schedule::Kind::kConstant;
    case ScheduleKind::kLinear:
      return Schedule::Kind::kLinear;
    case ScheduleKind::kCosine:
      return Schedule::Kind::kCosine;
    case ScheduleKind::kWsd:
      return Schedule::Kind::kWsd;
    case ScheduleKind::kInverseSqrt:
      return Schedule::Kind::kInverseSqrt;
  }
  return Schedule::Kind::kConstant;
}

Schedule schedule_of(const RunSpec& run) {
  return {schedule_kind(run.schedule.kind),
          run.optimizer.lr,
          run.schedule.min_lr,
          run.schedule.warmup,
          run.train.steps,
          run.schedule.decay > 0 ? run.schedule.decay : run.train.steps / 10};
}

DType type_of(Precision precision) {
  return precision == Precision::kBf16 ? DType::kBF16 : DType::kF32;
}
DType type_of(WireType type) { return type == WireType::kBf16 ? DType::kBF16 : DType::kF32; }

F32Products products_of(Precision precision) {
  if (precision != Precision::kFp32x3) return F32Products::kF32;
  if (!kernels::has_tile_product()) {
    throw Error(ErrorKind::kUsage,
                "train.precision \"fp32x3\" needs a CPU with AMX for bf16, which this one has not",
                "set train.precision = \"fp32\"");
  }
  return F32Products::kThreeBf16;
}

AdamWOptions adamw_of(const OptimizerSpec& spec) {
  return {spec.betas[0], spec.betas[1], spec.eps, spec.weight_decay};
}

TransformerOptions model_options(const RunSpec& run) {
  TransformerOptions options;
  options.head_layout = head_layout_of(run);
  options.kept = kept_by_block(run);
  options.sequence_parallel = run.overlap.sequence_parallel;
  options.sp_regather = run.overlap.sp_regather;
  options.moe.experts = {run.parallel.expert, run.parallel.expert_placement};
  options.moe.drop_duplicates = run.parallel.drop_duplicates;
  options.moe.node_first = run.parallel.node_first_exchange;
  options.moe.chunks = run.parallel.expert_chunks;
  options.moe.local_bias = static_cast<float>(run.parallel.local_expert_bias);
  options.moe.ranks_on_node = run.parallel.ranks_on_node;
  return options;
}

/// Norms and biases never decay, embeddings by choice.
bool decays(ParameterRole role, const OptimizerSpec& spec) {
  return role == ParameterRole::kLinear || role == ParameterRole::kRouter ||
         (role == ParameterRole::kEmbedding && spec.decay_embeddings);
}

}  // namespace

RankModel::RankModel(const RunSpec& run, Communicator& world)
    : RankModel(run, world, model_layers_of(run)) {}

RankModel::RankModel(const RunSpec& run, Communicator& world, const ModelLayers& layers)
    : run_(run),
      world_(world),
      grid_(Grid(run.parallel.grid, run.parallel.order), world),
      overlap_({run.overlap.all_reduce, run.overlap.reduce_scatter, run.overlap.all_gather,
                run.overlap.data_reduce, run.overlap.data_gather, run.overlap.prefetch_depth,
                run.overlap.slices}),
      specs_(parameters_of(layers)),
      plan_(overlap_plan(layers, kept_by_block(run))),
      context_{grid_,
               type_of(run.train.precision),
               run.memory.zero == 1,
               run.seed,
               true,
               &overlap_,
               type_of(run.overlap.grad_dtype),
               products_of(run.train.precision)},
      model_(context_, run.model, model_options(run)),
      held_(specs_.size()),
      routers_(run.model) {
  for (const ParameterSpec& spec : specs_) {
    index_[spec.name] = names_.size();
    names_.push_back(spec.name);
  }
  for (Parameter* p : model_.parameters()) held_[index_of(*p)] = p;
  // The first unit is the embedding.
  const int cached = run.overlap.cache_layers;
  overlap_.bind(model_.units(), cached > 0 ? static_cast<std::size_t>(cached) + 1 : 0);
  bind_optimizer();
}

void RankModel::bind_optimizer() {
  for (Parameter* p : model_.parameters()) {
    OptimizerTensor t;
    t.name = p->spec.name;
    t.master = p->master;
    t.gradient = p->updated_gradient();
    t.exp_avg = p->exp_avg;
    t.exp_avg_sq = p->exp_avg_sq;
    if (context_.compute == DType::kBF16) t.weight = p->updated_weight();
    t.decay = decays(p->spec.role, run_.optimizer);
    t.counted = p->counted;
    optimizer_.push_back(std::move(t));
  }
}

std::vector<std::int64_t> RankModel::sample_numbers(std::int64_t index) const {
  const std::int64_t micro = run_.train.micro_batch;
  const Coords at = context_.coords();
  const std::int64_t ranks = context_.size(Axis::kZ) * context_.size(Axis::kData);
  const std::int64_t rank = at.data * context_.size(Axis::kZ) + at.z;
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < micro; ++i) numbers.push_back((index * ranks + rank) * micro + i);
  return numbers;
}

MicroBatch RankModel::make_batch(std::int64_t first_sample, std::vector<std::int64_t> numbers,
                                 const SampleReader& samples) const {
  MicroBatch batch;
  batch.seq = run_.train.seq_len;
  const auto rows = static_cast<std::int64_t>(numbers.size()) * batch.seq;
  batch.tokens = empty_tensor({rows}, DType::kI64);
  batch.targets = empty_tensor({rows}, DType::kI64);
  auto* tokens = elements<std::int64_t>(batch.tokens);
  auto* targets = elements<std::int64_t>(batch.targets);
  for (const std::int64_t number : numbers) {
    samples(first_sample + number, tokens, targets);
    tokens += batch.seq;
    targets += batch.seq;
  }
  batch.samples = std::move(numbers);
  return batch;
}

double RankModel::compute_gradients(std::int64_t step, std::int64_t first_sample,
                                    const SampleReader& samples) {
  const std::int64_t tokens = run_.train.global_batch * run_.train.seq_len;
  for (const ParameterUnit& unit : model_.units()) unit.forget_gradients();
  routers_.begin_step();
  double loss_sum = 0;
  GradientSync sync(context_, overlap_);
  for (std::int64_t i = 0; i < run_.accumulation(); ++i) {
    MicroBatch batch = make_batch(first_sample, sample_numbers(i), samples);
    batch.step = step;
    batch.dropout = true;
    batch.routing = routers_.counting();
    overlap_.begin(plan_.step, model_.slices_of(batch));
    const bool last = i + 1 == run_.accumulation();
    auto passed = [&](const ParameterUnit& unit) {
      if (last) sync.passed(unit);
    };
    loss_sum += model_.forward_backward(batch, 1.0f / static_cast<float>(tokens), passed);
  }
  sync.finish();
  Communicator& ranks = grid_.group({Axis::kZ, Axis::kData});
  ranks.all_reduce({&loss_sum, 1, DType::kF64}, ReduceOp::kSum).wait_host();
  routers_.sum(ranks);
  return loss_sum / static_cast<double>(tokens);
}

bool RankModel::finite(double loss, const GradientNorm& norm, std::int64_t step) const {
  if (std::isfinite(loss) && norm.non_finite == 0) return true;
  if (run_.train.non_finite == NonFinite::kSkip) return false;
  throw Error(ErrorKind::kNumerics,
              norm.non_finite == 0
                  ? fmt::format("step {}: the loss is {}", step + 1, loss)
                  : fmt::format("step {}: the gradient of {} has values that are not finite "
                                "({} in all; loss {})",
                                step + 1, norm.first_bad, norm.non_finite, loss),
              "lower optimizer.lr or raise schedule.warmup, or set train.non_finite = \"skip\" to "
              "pass over such steps");
}

GradientNorm RankModel::gradient_norm() {
  GradientNormSum sum;
  {
    const TimedSpan span = context_.timed("gradient norm");
    for (std::size_t i = 0; i < optimizer_.size(); ++i) {
      sum.add(optimizer_[i], static_cast<std::int64_t>(index_of(*model_.parameters()[i])));
    }
  }
  return sum.combine(names_, world_);
}

StepResult RankModel::apply_gradients(std::int64_t step, double loss) {
  StepResult result;
  const std::int64_t tokens = run_.train.global_batch * run_.train.seq_len;
  result.loss = loss;
  result.aux_loss = routers_.aux_loss(tokens);
  result.z_loss = routers_.z_loss(tokens);
  result.lr = learning_rate(schedule_of(run_), step);
  const GradientNorm norm = gradient_norm();
  result.grad_norm = norm.norm;
  result.skipped = !finite(result.loss, norm, step);
  if (result.skipped) return result;
  ++updates_;
  routers_.update();
  const double scale = clip_factor(norm.norm, run_.optimizer.clip_grad);
  // In the order of the next forward: the weights that it needs first are on their way first.
  std::span<const OptimizerTensor> rest = optimizer_;
  for (const ParameterUnit& unit : model_.units()) {
    {
      const TimedSpan span = context_.timed("update");
      adamw_update(adamw_of(run_.optimizer), rest.first(unit.parameters().size()), updates_,
                   result.lr, scale);
    }
    rest = rest.subspan(unit.parameters().size());
    overlap_.spread(context_, unit);
  }
  return result;
}

double RankModel::evaluate(std::int64_t count, const SampleReader& samples) {
  const std::int64_t seq = run_.train.seq_len;
  const std::int64_t per_batch =
      run_.train.micro_batch * context_.size(Axis::kZ) * context_.size(Axis::kData);
  double loss_sum = 0;
  for (std::int64_t first = 0, index = 0; first < count; first += per_batch, ++index) {
    std::vector<std::int64_t> numbers = sample_numbers(index);
    const auto real =
        std::count_if(numbers.begin(), numbers.end(), [&](std::int64_t n) { return n < count; });
    // All ranks run every batch, since its collectives need them; samples past the end repeat the
    // last one and their rows are left out of the sum.
    for (std::int64_t& n : numbers) n = std::min(n, count - 1);
    MicroBatch batch = make_batch(0, std::move(numbers), samples);
    batch.routing = routers_.reading();
    rows_of(batch.targets, real * seq, batch.rows()).fill_(kernels::kIgnoredTarget);
    overlap_.begin(plan_.forward);
    loss_sum += model_.forward(batch);
  }
  grid_.group({Axis::kZ, Axis::kData})
      .all_reduce({&loss_sum, 1, DType::kF64}, ReduceOp::kSum)
      .wait_host();
  return loss_sum / static_cast<double>(count * seq);
}

std::vector<StateTensor> RankModel::state() {
  std::vector<StateTensor> state;
  for (std::size_t i = 0; i < specs_.size(); ++i) add_state(i, state);
  routers_.add_state(world_.rank(), world_.size(), state);
  return state;
}

void RankModel::add_state(std::size_t index, std::vector<StateTensor>& state) {
  const ParameterSpec& spec = specs_[index];
  const Parameter* const p = held_[index];
  StateTensor t;
  t.name = spec.name;
  t.shape = spec.layout.shape;
  t.cls = tensor_class(spec);
  const HeldRegion held =
      held_region(spec.layout, context_.shape(), context_.coords(), context_.zero);
  t.region = held.region;
  t.replica = held.replica;
  t.replicas = held.replicas;
  t.replica_set = held.replica_set;
  t.layout = &spec.layout;
  auto add = [&](const char* kind, DType dtype, const at::Tensor& tensor) {
    t.kind = kind;
    t.dtype = dtype;
    t.data = tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
    state.push_back(t);
  };
  if (context_.compute == DType::kBF16) {
    t.optional = true;  // An fp32 run stores none: it is made from the master.
    add(kKindWeight, DType::kBF16, p ? p->updated_weight() : at::Tensor());
    t.optional = false;
  }
  add(kKindMaster, DType::kF32, p ? p->master : at::Tensor());
  add(kKindExpAvg, DType::kF32, p ? p->exp_avg : at::Tensor());
  add(kKindExpAvgSq, DType::kF32, p ? p->exp_avg_sq : at::Tensor());
}

void RankModel::restored(std::span<const StateTensor> state, std::int64_t updates) {
  updates_ = updates;
  for (std::size_t i = 0; i < state.size(); ++i) {
    const StateTensor& t = state[i];
    if (t.kind != kKindWeight) continue;
    const StateTensor& master = state[i + 1];  // state() lists it next.
    FF_CHECK(master.name == t.name && master.kind == kKindMaster, "{}", master.key());
    const auto* from = static_cast<const float*>(master.data);
    auto* to = static_cast<BFloat16*>(t.data);
    for (std::int64_t e = 0; e < t.region.elements(); ++e) {
      const BFloat16 rounded(from[e]);
      if (t.loaded && to[e].bits != rounded.bits) {
        throw Error(
            ErrorKind::kData,
            fmt::format("the checkpoint's weight of {} is not its master rounded to bf16", t.name),
            "it was not written by fourfold, or damaged before it was; go back to an "
            "earlier one");
      }
      to[e] = rounded;
    }
  }
  for (const ParameterUnit& unit : model_.units()) overlap_.spread(context_, unit);
}

}  // namespace fourfold
