#include "parallel/vocab_loss.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "kernels/cross_entropy.h"
#include "parallel/products.h"

namespace fourfold {
namespace {

/// Bytes of logits that exist at once: enough rows for full-speed products, little next to the
/// activations.
constexpr std::int64_t kLogitsBytes = std::int64_t{96} << 20;

/// `scale` for each row that has a target, 0 for the others.
std::vector<float> row_scales(const at::Tensor& targets, float scale) {
  std::vector<float> scales(static_cast<std::size_t>(targets.numel()));
  const auto* target = elements<std::int64_t>(targets);
  std::transform(target, target + targets.numel(), scales.begin(),
                 [&](std::int64_t t) { return t < 0 ? 0 : scale; });
  return scales;
}

}  // namespace

VocabLoss::VocabLoss(const ParallelContext& context, WeightBlock& weights)
    : context_(context), weights_(weights) {}

std::int64_t VocabLoss::rows_per_chunk() const {
  // The widest rank's vocabulary, so that all ranks cut alike.
  const std::int64_t vocab = weights_.parameters().front().spec.layout.shape[0];
  const std::int64_t widest = split_range(vocab, context_.size(Axis::kX), 0).size();
  return std::max<std::int64_t>(64, kLogitsBytes / (widest * dtype_size(context_.compute)));
}

at::Tensor VocabLoss::chunk_logits(const at::Tensor& hidden, const at::Tensor& weight) const {
  const at::Tensor logits = product_forward(hidden, weight);
  context_.grid.group({Axis::kY}).all_reduce(buffer_of(logits), ReduceOp::kSum).wait_stream();
  return logits;
}

VocabLoss::RowStatistics VocabLoss::reduce_rows(const at::Tensor& logits,
                                                const at::Tensor& targets) const {
  const std::int64_t rows = logits.size(0), cols = logits.size(1);
  RowStatistics s{empty_tensor({rows}, DType::kF32), empty_tensor({2, rows}, DType::kF32)};
  float* max = elements<float>(s.max);
  float* sums = elements<float>(s.sums);
  Communicator& x = context_.grid.group({Axis::kX});
  with_type(context_.compute, [&]<class T>(T) {
    kernels::row_max(elements<T>(logits), rows, cols, max);
    x.all_reduce(buffer_of(s.max), ReduceOp::kMax).wait_stream();
    kernels::sum_exp_and_target(elements<T>(logits), max, elements<std::int64_t>(targets),
                                vocabulary().begin, rows, cols, sums, sums + rows);
  });
  x.all_reduce(buffer_of(s.sums), ReduceOp::kSum).wait_stream();
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

VocabLoss::Result VocabLoss::forward_backward(const at::Tensor& hidden, const at::Tensor& targets,
                                              float scale) {
  const std::int64_t rows = hidden.size(0), chunk = rows_per_chunk();
  const at::Tensor weight = weights_.gather();
  const WeightBlock::GradientTarget target = weights_.gradient_target();
  Result result;
  result.d_hidden = empty_tensor({rows, hidden.size(1)}, context_.compute);
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(rows, begin + chunk);
    const at::Tensor part = rows_of(hidden, begin, end);
    const at::Tensor part_targets = rows_of(targets, begin, end);
    const at::Tensor logits = chunk_logits(part, weight);
    const RowStatistics s = reduce_rows(logits, part_targets);
    result.loss_sum += loss_of(s, part_targets);
    with_type(context_.compute, [&]<class T>(T) {
      kernels::softmax_gradient(elements<T>(logits), elements<float>(s.max),
                                elements<float>(s.sums), elements<std::int64_t>(part_targets),
                                vocabulary().begin, row_scales(part_targets, scale).data(),
                                end - begin, logits.size(1));
    });
    product_input_gradient(logits, weight, rows_of(result.d_hidden, begin, end));
    product_weight_gradient(logits, part, target.tensor, target.accumulate || begin > 0);
  }
  weights_.add_gradient(target);
  Communicator& x = context_.grid.group({Axis::kX});
  x.all_reduce(buffer_of(result.d_hidden), ReduceOp::kSum).wait_stream();
  return result;
}

double VocabLoss::forward(const at::Tensor& hidden, const at::Tensor& targets) const {
  const std::int64_t rows = hidden.size(0), chunk = rows_per_chunk();
  const at::Tensor weight = weights_.gather();
  double sum = 0;
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    const std::int64_t end = std::min(rows, begin + chunk);
    const at::Tensor part_targets = rows_of(targets, begin, end);
    const at::Tensor logits = chunk_logits(rows_of(hidden, begin, end), weight);
    sum += loss_of(reduce_rows(logits, part_targets), part_targets);
  }
  return sum;
}

at::Tensor VocabLoss::logits(const at::Tensor& hidden) const {
  return chunk_logits(hidden, weights_.gather());
}

}  // namespace fourfold
