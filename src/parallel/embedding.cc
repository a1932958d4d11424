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
  {
    const TimedSpan span = context_.timed("embedding");
    with_type(context_.compute, [&]<class T>(T) {
      kernels::embedding_forward(elements<std::int64_t>(tokens), elements<T>(table), vocab_begin,
                                 table_.rows(), rows, cols, elements<T>(partial));
    });
  }
  const at::Tensor out = co_await stream_.sum(partial);
  if (positions_) {
    const at::Tensor position_table = positions_->gather();
    const TimedSpan span = context_.timed("embedding");
    with_type(context_.compute, [&]<class T>(T) {
      kernels::position_forward(elements<T>(position_table), seq, first_position,
                                stream_.own(rows).begin, out.size(0), cols, elements<T>(out));
    });
  }
  co_return out;
}

void Embedding4D::add_table_gradient(const at::Tensor& tokens, const at::Tensor& d_rows) {
  const WeightBlock::GradientTarget target = cleared_target(table_);
  const std::int64_t vocab_begin = table_.parameters().front().block.dims[0].begin;
  {
    const TimedSpan span = context_.timed("embedding backward");
    with_type(context_.compute, [&]<class T>(T) {
      kernels::embedding_backward(elements<std::int64_t>(tokens), elements<T>(d_rows), vocab_begin,
                                  table_.rows(), d_rows.size(0), table_.cols(),
                                  elements<float>(target.tensor));
    });
  }
  table_.add_gradient(target);
}

void Embedding4D::add_position_gradient(std::int64_t seq, const at::Tensor& d_rows) {
  const WeightBlock::GradientTarget target = cleared_target(*positions_);
  {
    const TimedSpan span = context_.timed("embedding backward");
    with_type(context_.compute, [&]<class T>(T) {
      kernels::position_backward(elements<T>(d_rows), seq, 0, d_rows.size(0), d_rows.size(1),
                                 elements<float>(target.tensor));
    });
  }
  positions_->add_gradient(target);
}

Async<void> Embedding4D::backward(const at::Tensor& tokens, std::int64_t seq,
                                  const at::Tensor& d_output) {
  const at::Tensor d_rows = co_await stream_.gather(d_output, tokens.numel());
  add_table_gradient(tokens, d_rows);
  if (positions_) add_position_gradient(seq, d_rows);
}

}  // namespace fourfold
