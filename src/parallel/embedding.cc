#include "parallel/embedding.h"

#include "device/tensors.h"
#include "kernels/embedding.h"

namespace fourfold {
namespace {

/// A gradient target that holds zeros or what was there, so that rows can be added to it.
WeightBlock::GradientTarget cleared_target(WeightBlock& block) {
  WeightBlock::GradientTarget target = block.gradient_target();
  if (!target.accumulate) target.tensor.zero_();
  return target;
}

}  // namespace

Embedding4D::Embedding4D(const ParallelContext& context, const EmbeddingSpec& spec)
    : context_(context),
      stream_(context, spec.rows_over_x),
      table_(context, {token_table_spec(spec)}) {
  if (spec.position_name.empty()) return;
  positions_ =
      std::make_unique<WeightBlock>(context, std::vector<ParameterSpec>{position_table_spec(spec)});
}

Async<at::Tensor> Embedding4D::forward(const at::Tensor& tokens, std::int64_t seq,
                                       std::int64_t first_position) const {
  const std::int64_t rows = tokens.numel(), cols = table_.cols();
  const at::Tensor partial = empty_tensor({rows, cols}, context_.compute);
  const at::Tensor table = table_.gather();
  const std::int64_t vocab_begin = table_.parameters().front().block.dims[0].begin;
  with_type(context_.compute, [&]<class T>(T) {
    kernels::embedding_forward(elements<std::int64_t>(tokens), elements<T>(table), vocab_begin,
                               table_.rows(), rows, cols, elements<T>(partial));
  });
  const at::Tensor out = co_await stream_.sum(partial);
  if (positions_) {
    const at::Tensor position_table = positions_->gather();
    with_type(context_.compute, [&]<class T>(T) {
      kernels::position_forward(elements<T>(position_table), seq, first_position,
                                stream_.own(rows).begin, out.size(0), cols, elements<T>(out));
    });
  }
  co_return out;
}

Async<void> Embedding4D::backward(const at::Tensor& tokens, std::int64_t seq,
                                  const at::Tensor& d_output) {
  const std::int64_t rows = tokens.numel(), cols = table_.cols();
  const at::Tensor d_rows = co_await stream_.gather(d_output, rows);
  const WeightBlock::GradientTarget target = cleared_target(table_);
  const std::int64_t vocab_begin = table_.parameters().front().block.dims[0].begin;
  with_type(context_.compute, [&]<class T>(T) {
    kernels::embedding_backward(elements<std::int64_t>(tokens), elements<T>(d_rows), vocab_begin,
                                table_.rows(), rows, cols, elements<float>(target.tensor));
  });
  table_.add_gradient(target);
  if (!positions_) co_return;
  const WeightBlock::GradientTarget position_target = cleared_target(*positions_);
  with_type(context_.compute, [&]<class T>(T) {
    kernels::position_backward(elements<T>(d_rows), seq, 0, rows, cols,
                               elements<float>(position_target.tensor));
  });
  positions_->add_gradient(position_target);
}

}  // namespace fourfold
