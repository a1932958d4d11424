#include "model/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/philox.h"
#include "comm/await_work.h"
#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "kernels/elementwise.h"
#include "kernels/parallel.h"
#include "kernels/router.h"
#include "model/capacity.h"
#include "parallel/overlap_scheduler.h"
#include "parallel/products.h"

namespace fourfold {
namespace {

/// x[row, column] *= 1 + jitter·u with u uniform in [-1, 1), a function of global coordinates. The
/// first row is row0 of the batch.
void multiply_by_jitter(const at::Tensor& x, std::int64_t row0, const MicroBatch& batch,
                        double jitter, const ParallelContext& context, std::int64_t hidden,
                        int block) {
  const PhiloxKey key = philox_key(context.seed, RandomPurpose::kRouter);
  const std::int64_t cols = x.size(1);
  const std::int64_t col0 = split_range(hidden, context.size(Axis::kY), context.coords().y).begin;
  auto* values = elements<float>(x);
  kernels::parallel_ranges(x.size(0), cols, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t in_batch = row0 + r;
      const auto row = static_cast<std::uint64_t>(
          batch.samples[static_cast<std::size_t>(in_batch / batch.seq)] * batch.seq +
          in_batch % batch.seq);
      for (std::int64_t c = 0; c < cols; ++c) {
        const auto column = static_cast<std::uint32_t>(col0 + c);
        const auto word = philox4x32(
            {static_cast<std::uint32_t>(row),
             static_cast<std::uint32_t>(row >> 32) ^ static_cast<std::uint32_t>(block) << 16,
             column / 4, static_cast<std::uint32_t>(batch.step)},
            key)[column % 4];
        const double u = std::ldexp(static_cast<double>(word), -31) - 1;
        values[r * cols + c] *= static_cast<float>(1 + jitter * u);
      }
    }
  });
}

}  // namespace

Router::Router(const ParallelContext& context, const MoeSpec& spec, const MoeLayers& layers,
               int block, std::vector<float> local_bias)
    : context_(context),
      stream_(context, layers.router.rows_over_x),
      spec_(spec),
      block_(block),
      local_bias_(std::move(local_bias)),
      weights_(context, {router_weight_spec(layers.router)}) {}

std::int64_t Router::scopes(const MicroBatch& batch) const {
  return spec_.balance_scope == BalanceScope::kSequence ? batch.rows() / batch.seq : 1;
}

at::Tensor Router::operand(const at::Tensor& x, const MicroBatch& batch) const {
  const bool jitters = batch.dropout && spec_.jitter > 0;
  at::Tensor in = as_type(x, DType::kF32);
  if (!jitters) return in;
  if (context_.compute == DType::kF32) in = x.clone();
  const std::int64_t hidden = weights_.parameters().front().spec.layout.shape[1];
  multiply_by_jitter(in, stream_.own(batch.rows()).begin, batch, spec_.jitter, context_, hidden,
                     block_);
  return in;
}

Async<void> Router::forward(const at::Tensor& x, const MicroBatch& batch, Saved& saved) const {
  const at::Tensor weight = as_type(weights_.gather(), DType::kF32);
  at::Tensor logits;
  {
    const TimedSpan span = context_.timed("router");
    logits = product_forward(operand(x, batch), weight);
  }
  Communicator& contraction = context_.grid.group({Axis::kY});
  const Lane lane = forward_lane(context_);
  co_await finished(contraction.all_reduce(buffer_of(logits), ReduceOp::kSum, lane));
  saved.logits = co_await stream_.gather(logits, batch.rows());
  saved.scores = empty_tensor(saved.logits.sizes(), DType::kF32);
  kernels::router_scores(elements<float>(saved.logits), batch.rows(), experts(),
                         spec_.score == RouterScore::kSigmoid, elements<float>(saved.scores));
  co_await choose(batch, saved);
  saved.weights = empty_tensor({batch.rows(), spec_.top_k}, DType::kF32);
  kernels::combine_weights(elements<float>(saved.scores), saved.chosen.data(), batch.rows(),
                           experts(), spec_.top_k, spec_.renormalise,
                           elements<float>(saved.weights));
  co_await limit_to_capacity(batch, saved);
  const bool trains = batch.loss_scale != 0 || batch.routing.tally;
  if (trains && spec_.balance == Balance::kAuxLoss) co_await find_share(batch, saved);
  if (batch.routing.tally) tally(batch, saved);
}

Async<void> Router::choose(const MicroBatch& batch, Saved& saved) const {
  Communicator& sharers = context_.grid.group(AxisSet{Axis::kX, Axis::kY});
  saved.chosen.resize(static_cast<std::size_t>(batch.rows() * spec_.top_k));
  if (sharers.rank() == 0) choose_here(batch, saved);
  const Buffer chosen{saved.chosen.data(), static_cast<std::int64_t>(saved.chosen.size()),
                      DType::kI32};
  if (sharers.size() > 1) {
    co_await finished(sharers.broadcast(chosen, 0, forward_lane(context_)));
  }
}

std::vector<float> Router::choice_bias(const MicroBatch& batch) const {
  std::vector<float> bias = local_bias_;
  if (spec_.balance != Balance::kLossFree) return bias;
  FF_CHECK(batch.routing.memory, "no bias of block {}", block_);
  const std::vector<float>& moved = (*batch.routing.memory)[static_cast<std::size_t>(block_)].bias;
  bias.resize(moved.size());
  for (std::size_t e = 0; e < bias.size(); ++e) bias[e] += moved[e];
  return bias;
}

void Router::choose_here(const MicroBatch& batch, Saved& saved) const {
  const std::vector<float> bias = choice_bias(batch);
  const bool records = batch.routing.recorded != nullptr;
  std::vector<float> margin(records ? static_cast<std::size_t>(batch.rows()) : 0);
  kernels::choose_experts(elements<float>(saved.scores), bias.empty() ? nullptr : bias.data(),
                          batch.rows(), experts(), spec_.top_k, saved.chosen.data(),
                          records ? margin.data() : nullptr);
  if (records) record(batch, saved, margin);
  overrule(batch, saved);
}

void Router::record(const MicroBatch& batch, const Saved& saved,
                    const std::vector<float>& margin) const {
  const std::int64_t width = batch.seq * spec_.top_k;
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const auto n = static_cast<std::int64_t>(i);
    RoutingTable::Sequence& sequence =
        batch.routing.recorded->sequences[{block_, batch.samples[i]}];
    sequence.chosen.assign(saved.chosen.begin() + n * width,
                           saved.chosen.begin() + (n + 1) * width);
    sequence.margin.assign(margin.begin() + n * batch.seq, margin.begin() + (n + 1) * batch.seq);
  }
}

void Router::overrule(const MicroBatch& batch, Saved& saved) const {
  const std::int64_t width = batch.seq * spec_.top_k;
  for (std::size_t i = 0; i < batch.samples.size(); ++i) {
    const auto begin = saved.chosen.begin() + static_cast<std::int64_t>(i) * width;
    if (spec_.balance == Balance::kForced) {
      const std::int64_t first = batch.samples[i] * width;
      for (std::int64_t a = 0; a < width; ++a) {
        begin[a] = static_cast<std::int32_t>((first + a) % experts());
      }
    } else if (batch.routing.imposed) {
      const auto& from = batch.routing.imposed->sequences.at({block_, batch.samples[i]}).chosen;
      std::copy(from.begin(), from.end(), begin);
    }
  }
}

Async<void> Router::limit_to_capacity(const MicroBatch& batch, Saved& saved) const {
  saved.taken = saved.chosen;
  // Generation drops nothing.
  if (spec_.capacity_factor == 0 || !batch.targets.defined()) co_return;
  if (spec_.balance_scope == BalanceScope::kSequence) {
    const std::int64_t most = expert_capacity(spec_, batch.seq);
    const bool by_score = spec_.drop_order == DropOrder::kScore;
    std::vector<float> scores(by_score ? saved.chosen.size() : 0);
    if (by_score) {
      kernels::combine_weights(elements<float>(saved.scores), saved.chosen.data(), batch.rows(),
                               experts(), spec_.top_k, /*renormalise=*/false, scores.data());
    }
    for (std::size_t i = 0; i < batch.samples.size(); ++i) {
      const std::size_t width = static_cast<std::size_t>(batch.seq * spec_.top_k);
      const std::span<std::int32_t> taken = std::span(saved.taken).subspan(i * width, width);
      if (by_score) {
        drop_lowest(taken, scores.data() + i * width, experts(), most);
      } else {
        std::vector<std::int64_t> before(static_cast<std::size_t>(experts()));
        drop_last(taken, before, most);
      }
    }
    co_return;
  }
  // Samples come in the order of z·data, so what the ranks before this one send counts first.
  Communicator& ranks = context_.grid.group(AxisSet{Axis::kZ, Axis::kData});
  const std::vector<double> counts = counts_by_scope(batch, saved);
  std::vector<double> all(counts.size() * static_cast<std::size_t>(ranks.size()));
  const std::vector<std::int64_t> each(static_cast<std::size_t>(ranks.size()), experts());
  const ConstBuffer mine(counts.data(), experts(), DType::kF64);
  const Buffer gathered{all.data(), static_cast<std::int64_t>(all.size()), DType::kF64};
  co_await finished(ranks.all_gather(mine, gathered, each, forward_lane(context_)));
  std::vector<std::int64_t> before(counts.size());
  for (std::size_t i = 0; i < counts.size() * static_cast<std::size_t>(ranks.rank()); ++i) {
    before[i % counts.size()] += static_cast<std::int64_t>(all[i]);
  }
  drop_last(saved.taken, before, expert_capacity(spec_, batch.rows() * ranks.size()));
}

std::vector<double> Router::counts_by_scope(const MicroBatch& batch, const Saved& saved) const {
  const std::int64_t count = scopes(batch);
  std::vector<double> counts(static_cast<std::size_t>(count * experts()));
  const std::size_t width = saved.chosen.size() / static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < saved.chosen.size(); ++i) {
    ++counts[i / width * static_cast<std::size_t>(experts()) +
             static_cast<std::size_t>(saved.chosen[i])];
  }
  return counts;
}

Async<void> Router::find_share(const MicroBatch& batch, Saved& saved) const {
  std::vector<double> counts = counts_by_scope(batch, saved);
  if (spec_.balance_scope == BalanceScope::kMicrostep) {
    Communicator& ranks = context_.grid.group(AxisSet{Axis::kZ, Axis::kData});
    const Buffer sums{counts.data(), experts(), DType::kF64};
    co_await finished(ranks.all_reduce(sums, ReduceOp::kSum, forward_lane(context_)));
  } else if (spec_.balance_scope == BalanceScope::kStep) {
    FF_CHECK(batch.routing.memory, "no counts of block {}", block_);
    const auto& last = (*batch.routing.memory)[static_cast<std::size_t>(block_)].tokens;
    counts.assign(last.begin(), last.end());
  }
  saved.share = empty_tensor({scopes(batch), experts()}, DType::kF32);
  auto* share = elements<float>(saved.share);
  for (std::int64_t s = 0; s < scopes(batch); ++s) {
    const auto begin = counts.begin() + s * experts();
    const double sum = std::accumulate(begin, begin + experts(), 0.0);
    for (std::int64_t e = 0; e < experts(); ++e) {
      // Before the first step nothing was counted.
      share[s * experts() + e] =
          static_cast<float>(sum > 0 ? begin[e] / sum : 1.0 / static_cast<double>(experts()));
    }
  }
}

void Router::tally(const MicroBatch& batch, const Saved& saved) const {
  RouterTally& tally = (*batch.routing.tally)[static_cast<std::size_t>(block_)];
  tally.tokens.resize(static_cast<std::size_t>(experts()));
  for (const std::int32_t e : saved.chosen) ++tally.tokens[static_cast<std::size_t>(e)];
  tally.dropped += static_cast<double>(std::count(saved.taken.begin(), saved.taken.end(), -1));
  const auto* scores = elements<float>(saved.scores);
  const bool sigmoid = spec_.score == RouterScore::kSigmoid;
  tally.entropy += kernels::entropy_sum(scores, batch.rows(), experts(), sigmoid);
  if (spec_.z_coef > 0) {
    tally.z += kernels::z_loss_sum(elements<float>(saved.logits), batch.rows(), experts());
  }
  if (!saved.share.defined()) return;
  tally.balance += kernels::balance_sum(scores, elements<float>(saved.share), batch.rows(),
                                        experts(), batch.rows() / scopes(batch), sigmoid);
}

at::Tensor Router::logits_gradient(const MicroBatch& batch, const Saved& saved,
                                   const at::Tensor& d_weights) const {
  kernels::RouterGradients in;
  in.sigmoid = spec_.score == RouterScore::kSigmoid;
  in.renormalise = spec_.renormalise;
  in.top_k = spec_.top_k;
  in.scores = elements<float>(saved.scores);
  in.chosen = saved.chosen.data();
  in.d_weights = elements<float>(d_weights);
  in.z_coefficient = static_cast<float>(spec_.z_coef) * batch.loss_scale;
  in.logits = elements<float>(saved.logits);
  at::Tensor d_probabilities;
  if (saved.share.defined()) {
    d_probabilities = empty_tensor({batch.rows(), experts()}, DType::kF32);
    const auto factor = static_cast<float>(spec_.aux_coef * static_cast<double>(experts()) *
                                           static_cast<double>(batch.loss_scale));
    const std::int64_t per_scope = batch.rows() / scopes(batch);
    auto* d = elements<float>(d_probabilities);
    const auto* share = elements<float>(saved.share);
    for (std::int64_t i = 0; i < d_probabilities.numel(); ++i) {
      const std::int64_t row = i / experts(), expert = i % experts();
      d[i] = factor * share[row / per_scope * experts() + expert];
    }
    in.d_probabilities = d;
  }
  const TimedSpan span = context_.timed("router backward");
  at::Tensor d_logits = empty_tensor({batch.rows(), experts()}, DType::kF32);
  kernels::router_backward(in, batch.rows(), experts(), elements<float>(d_logits));
  return d_logits;
}

Async<at::Tensor> Router::backward(const at::Tensor& x, const MicroBatch& batch, const Saved& saved,
                                   const at::Tensor& d_weights) {
  const at::Tensor weight = as_type(weights_.gather(), DType::kF32);
  const at::Tensor of_all = co_await stream_.gather(d_weights, batch.rows());
  const at::Tensor d_logits = stream_.own_of(logits_gradient(batch, saved, of_all));
  const TimedSpan span = context_.timed("router backward");
  const WeightBlock::GradientTarget target = weights_.gradient_target();
  product_weight_gradient(d_logits, operand(x, batch), target.tensor, target.accumulate);
  weights_.add_gradient(target);
  at::Tensor d_x = product_input_gradient(d_logits, weight);
  if (batch.dropout && spec_.jitter > 0) {
    const std::int64_t hidden = weights_.parameters().front().spec.layout.shape[1];
    multiply_by_jitter(d_x, stream_.own(batch.rows()).begin, batch, spec_.jitter, context_, hidden,
                       block_);
  }
  co_return d_x;
}

}  // namespace fourfold
