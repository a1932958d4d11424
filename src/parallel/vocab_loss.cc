#include "parallel/vocab_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "parallel/columns.h"
#include "parallel/products.h"

namespace fourfold {
namespace {

/// `scale` for each row that has a target, 0 for the others.
std::vector<float> row_scales(const at::Tensor& targets, float scale) {
  std::vector<float> scales(static_cast<std::size_t>(targets.numel()));
  const auto* target = elements<std::int64_t>(targets);
  std::transform(target, target + targets.numel(), scales.begin(),
                 [&](std::int64_t t) { return t < 0 ? 0 : scale; });
  return scales;
}

}  // namespace

VocabLoss::VocabLoss(const ParallelContext& context, WeightBlock& weights, HeadLayout layout,
                     bool tied, const StreamRows& stream)
    : context_(context),
      weights_(weights),
      layout_(layout),
      stream_(stream),
      exchanges_(tied && layout == HeadLayout::kGatherHidden),
      vocab_(weights.parameters().front().spec.layout.shape[0]),
      hidden_(weights.parameters().front().spec.layout.shape[1]),
      vocabulary_(weights.parameters().front().block.dims[0]) {
  if (!exchanges_) return;
  const Range part = split_range(vocabulary_.size(), context.size(Axis::kY), context.coords().y);
  vocabulary_ = {vocabulary_.begin + part.begin, vocabulary_.begin + part.end};
}

std::int64_t VocabLoss::rows_per_chunk() const {
  return logits_chunk_rows(context_.shape().shape(), layout_, vocab_, dtype_size(context_.compute));
}

at::Tensor VocabLoss::operand(const at::Tensor& hidden) const {
  return gathers() ? gather_columns(context_, hidden, hidden_) : hidden;
}

at::Tensor VocabLoss::weight() const {
  const at::Tensor block = weights_.gather();
  return exchanges_ ? exchange_rows_for_columns(context_, block, hidden_) : block;
}

WeightBlock::GradientTarget VocabLoss::gradient_target() {
  if (!exchanges_) return weights_.gradient_target();
  return {empty_tensor({vocabulary_.size(), hidden_}, DType::kF32), false};
}

void VocabLoss::add_gradient(const WeightBlock::GradientTarget& target) {
  if (!exchanges_) {
    weights_.add_gradient(target);
    return;
  }
  const at::Tensor block = exchange_columns_for_rows(context_, target.tensor, weights_.rows());
  const WeightBlock::GradientTarget stored = weights_.gradient_target();
  if (stored.accumulate) {
    kernels::accumulate(elements<float>(stored.tensor), elements<float>(block), block.numel());
  } else {
    stored.tensor.copy_(block);
  }
  weights_.add_gradient(stored);
}

at::Tensor VocabLoss::chunk_logits(const at::Tensor& operand, const at::Tensor& weight) const {
  at::Tensor logits;
  {
    const TimedSpan span = context_.timed("forward", weights_.name());
    logits = product_forward(operand, weight, context_.products);
  }
  if (!gathers()) {
    context_.grid.group({Axis::kY}).all_reduce(buffer_of(logits), ReduceOp::kSum).wait_stream();
  }
  return logits;
}

VocabLoss::RowStatistics VocabLoss::reduce_rows(const at::Tensor& logits,
                                                const at::Tensor& targets) const {
  const std::int64_t rows = logits.size(0), cols = logits.size(1);
  RowStatistics s{empty_tensor({rows}, DType::kF32), empty_tensor({2, rows}, DType::kF32)};
  float* max = elements<float>(s.max);
  float* sums = elements<float>(s.sums);
  Communicator& shards = context_.grid.group(vocabulary_axes(layout_));
  {
    const TimedSpan span = context_.timed("loss");
    with_type(context_.compute,
              [&]<class T>(T) { kernels::row_max(elements<T>(logits), rows, cols, max); });
  }
  shards.all_reduce(buffer_of(s.max), ReduceOp::kMax).wait_stream();
  {
    const TimedSpan span = context_.timed("loss");
    with_type(context_.compute, [&]<class T>(T) {
      kernels::sum_exp_and_target(elements<T>(logits), max, elements<std::int64_t>(targets),
                                  vocabulary_.begin, rows, cols, sums, sums + rows);
    });
  }
  shards.all_reduce(buffer_of(s.sums), ReduceOp::kSum).wait_stream();
  return s;
}

double VocabLoss::loss_of(const RowStatistics& s, const at::Tensor& targets) {
  const std::int64_t rows = s.max.size(0);
  const float* max = elements<float>(s.max);
  const float* sum_exp = elements<float>(s.sums);
  const float* target_logit = sum_exp + rows;
  const auto* target = elements<std::int64_t>(targets);
  double sum = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    if (target[r] < 0) continue;
    sum += std::log(static_cast<double>(sum_exp[r])) + max[r] - target_logit[r];
  }
  return sum;
}

void VocabLoss::make_gradient(const at::Tensor& logits, const RowStatistics& s,
                              const at::Tensor& targets, float scale) const {
  const TimedSpan span = context_.timed("loss gradient");
  with_type(context_.compute, [&]<class T>(T) {
    kernels::softmax_gradient(elements<T>(logits), elements<float>(s.max), elements<float>(s.sums),
                              elements<std::int64_t>(targets), vocabulary_.begin,
                              row_scales(targets, scale).data(), logits.size(0), logits.size(1));
  });
}

double VocabLoss::run_chunks(const at::Tensor& operand, const at::Tensor& targets, float scale,
                             const at::Tensor& d_operand,
                             const WeightBlock::GradientTarget& target) {
  const std::int64_t rows = operand.size(0), chunk = rows_per_chunk();
  const at::Tensor w = weight();
  double loss_sum = 0;
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(rows, begin + chunk);
    const at::Tensor part = rows_of(operand, begin, end);
    const at::Tensor part_targets = rows_of(targets, begin, end);
    const at::Tensor logits = chunk_logits(part, w);
    const RowStatistics s = reduce_rows(logits, part_targets);
    loss_sum += loss_of(s, part_targets);
    make_gradient(logits, s, part_targets, scale);
    {
      const TimedSpan span = context_.timed("dI", weights_.name());
      product_input_gradient(logits, w, rows_of(d_operand, begin, end), context_.products);
    }
    const TimedSpan span = context_.timed("dW", weights_.name());
    product_weight_gradient(logits, part, target.tensor, target.accumulate || begin > 0,
                            context_.products);
  }
  return loss_sum;
}

Async<VocabLoss::Result> VocabLoss::forward_backward(const at::Tensor& hidden,
                                                     const at::Tensor& targets, float scale) {
  const at::Tensor whole = co_await stream_.gather(hidden, targets.numel());
  const at::Tensor in = operand(whole);
  const at::Tensor d_in = empty_tensor(in.sizes(), context_.compute);
  const WeightBlock::GradientTarget target = gradient_target();
  Result result;
  result.loss_sum = run_chunks(in, targets, scale, d_in, target);
  add_gradient(target);
  // Each rank's vocabulary gave a part of the gradient: summed over y where y splits it, then x.
  const at::Tensor partial = gathers() ? scatter_columns(context_, d_in) : d_in;
  result.d_hidden = co_await stream_.sum(partial);
  co_return result;
}

Async<double> VocabLoss::forward(const at::Tensor& hidden, const at::Tensor& targets) const {
  const at::Tensor whole = co_await stream_.gather(hidden, targets.numel());
  const at::Tensor in = operand(whole);
  const at::Tensor w = weight();
  const std::int64_t rows = in.size(0), chunk = rows_per_chunk();
  double sum = 0;
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(rows, begin + chunk);
    const at::Tensor part_targets = rows_of(targets, begin, end);
    const at::Tensor logits = chunk_logits(rows_of(in, begin, end), w);
    sum += loss_of(reduce_rows(logits, part_targets), part_targets);
  }
  co_return sum;
}

at::Tensor VocabLoss::logits(const at::Tensor& hidden) const {
  return chunk_logits(operand(hidden), weight());
}

}  // namespace fourfold
