#include "model/block.h"

#include "device/tensors.h"
#include "model/dropout_places.h"

namespace fourfold {

Block::Block(const ParallelContext& context, const ModelSpec& spec, const BlockLayers& layers,
             int index, const MoeOptions& moe, bool keeps_whole)
    : context_(context),
      index_(index),
      hidden_(spec.hidden),
      dropout_(static_cast<float>(spec.dropout)),
      stream_(context, layers.attention_norm.rows_over_x),
      keeps_whole_(keeps_whole),
      attention_norm_(context, layers.attention_norm),
      attention_(context, spec, layers, index),
      mlp_norm_(context, layers.mlp_norm),
      mlp_(context, spec, layers, index, moe) {}

Async<at::Tensor> Block::whole(at::Tensor& rows, const MicroBatch& batch) const {
  const at::Tensor all = co_await stream_.gather(rows, batch.rows());
  if (keeps_whole_) rows = all;
  co_return all;
}

ParameterUnit Block::unit() {
  ParameterUnit unit;
  unit.add(attention_norm_.parameters());
  unit.add(attention_.qkv());
  if (attention_.qk_norm()) unit.add(attention_.qk_norm()->gains());
  unit.add(attention_.projection());
  unit.add(mlp_norm_.parameters());
  mlp_.add_to(unit);
  return unit;
}

at::Tensor Block::add_residual(const at::Tensor& in, const VectorBlock* bias,
                               const at::Tensor& residual, const MicroBatch& batch,
                               std::uint32_t place) const {
  const TimedSpan span = context_.timed("residual");
  const at::Tensor out = empty_tensor(in.sizes(), context_.compute);
  with_type(context_.compute, [&]<class T>(T) {
    kernels::residual_dropout_forward(
        elements<T>(in), bias ? bias->values() : nullptr, elements<T>(residual), elements<T>(out),
        in.size(0), in.size(1), hidden_dropout(context_, stream_, batch, dropout_, hidden_, place));
  });
  return out;
}

at::Tensor Block::residual_backward(const at::Tensor& d_output, VectorBlock* bias,
                                    const MicroBatch& batch, std::uint32_t place) const {
  const TimedSpan span = context_.timed("residual backward");
  const kernels::DropoutSpec spec =
      hidden_dropout(context_, stream_, batch, dropout_, hidden_, place);
  float* d_bias = bias ? bias->gradient() : nullptr;
  // Without dropout the gradient passes as it is: nothing is copied.
  const at::Tensor d_in = spec.p == 0 ? d_output : empty_tensor(d_output.sizes(), context_.compute);
  with_type(context_.compute, [&]<class T>(T) {
    T* out = spec.p == 0 ? nullptr : elements<T>(d_in);
    if (!out && !d_bias) return;
    kernels::residual_dropout_backward(elements<T>(d_output), out, d_bias, d_output.size(0),
                                       d_output.size(1), spec);
  });
  return d_in;
}

Async<at::Tensor> Block::forward(const at::Tensor& x, const MicroBatch& batch, Saved& saved) const {
  saved.input = x;
  saved.attention_input = co_await attention_norm_.forward(x, saved.attention_statistics);
  const at::Tensor attention_input = co_await whole(saved.attention_input, batch);
  const at::Tensor attended = co_await attention_.forward(attention_input, batch, saved.attention);
  saved.middle = add_residual(attended, attention_.projection().bias(), x, batch,
                              attention_dropout_place(index_));
  saved.mlp_input = co_await mlp_norm_.forward(saved.middle, saved.mlp_statistics);
  at::Tensor mlp_input = saved.mlp_input;
  if (mlp_.takes_whole()) mlp_input = co_await whole(saved.mlp_input, batch);
  const at::Tensor out = co_await mlp_.forward(mlp_input, batch, saved.mlp);
  co_return add_residual(out, mlp_.bias(), saved.middle, batch, mlp_dropout_place(index_));
}

void Block::Saved::keep(const KeptActivations& kept) {
  auto let_go = [](auto&... tensors) { (tensors.reset(), ...); };
  if (!kept.qkv) let_go(attention.qkv, attention.qk_norm.input);
  if (!kept.attention_input) let_go(attention_input);
  if (!kept.attention) let_go(attention.output, attention.log_sum_exp);
  if (!kept.middle) let_go(middle);
  if (!kept.mlp_input) let_go(mlp_input);
  mlp.keep(kept);
}

Async<void> Block::restore(const MicroBatch& batch, Saved& saved) const {
  if (!saved.attention_input.defined()) {
    saved.attention_input = attention_norm_.apply(saved.input, saved.attention_statistics);
  }
  at::Tensor input = saved.attention_input;
  if (Attention::needs_input(saved.attention)) input = co_await whole(saved.attention_input, batch);
  co_await attention_.restore(input, batch, saved.attention);
  if (!saved.middle.defined()) {
    const at::Tensor attended = co_await attention_.project(saved.attention);
    saved.middle = add_residual(attended, attention_.projection().bias(), saved.input, batch,
                                attention_dropout_place(index_));
  }
  if (!saved.mlp_input.defined()) {
    saved.mlp_input = mlp_norm_.apply(saved.middle, saved.mlp_statistics);
  }
  input = saved.mlp_input;
  if (mlp_.takes_whole() && mlp_.needs_input(saved.mlp)) {
    input = co_await whole(saved.mlp_input, batch);
  }
  co_await mlp_.restore(input, batch, saved.mlp);
}

Async<at::Tensor> Block::backward(const at::Tensor& d_output, const MicroBatch& batch,
                                  const Saved& saved) {
  at::Tensor d_middle;
  {
    const at::Tensor d_mlp =
        residual_backward(d_output, mlp_.bias(), batch, mlp_dropout_place(index_));
    const at::Tensor d_mlp_input = co_await mlp_.backward(saved.mlp_input, d_mlp, batch, saved.mlp);
    d_middle =
        co_await mlp_norm_.backward(d_mlp_input, saved.middle, saved.mlp_statistics, d_output);
  }
  const at::Tensor d_attended = residual_backward(d_middle, attention_.projection().bias(), batch,
                                                  attention_dropout_place(index_));
  const at::Tensor d_attention_input =
      co_await attention_.backward(saved.attention_input, d_attended, batch, saved.attention);
  co_return co_await attention_norm_.backward(d_attention_input, saved.input,
                                              saved.attention_statistics, d_middle);
}

Async<at::Tensor> Block::decode(const at::Tensor& x, const MicroBatch& batch,
                                KvCache& cache) const {
  Norm4D::Statistics unused;
  const at::Tensor normed = co_await attention_norm_.forward(x, unused);
  const at::Tensor attended = co_await attention_.decode(normed, batch, cache);
  const at::Tensor middle = add_residual(attended, attention_.projection().bias(), x, batch,
                                         attention_dropout_place(index_));
  FeedForward::Saved unsaved;
  const at::Tensor mlp_input = co_await mlp_norm_.forward(middle, unused);
  const at::Tensor out = co_await mlp_.forward(mlp_input, batch, unsaved);
  co_return add_residual(out, mlp_.bias(), middle, batch, mlp_dropout_place(index_));
}

}  // namespace fourfold
