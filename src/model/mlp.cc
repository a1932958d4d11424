#include "model/mlp.h"

#include "device/tensors.h"
#include "kernels/activation.h"
#include "kernels/elementwise.h"

namespace fourfold {
Mlp::Mlp(const ParallelContext& context, const ModelSpec& spec, const BlockLayers& layers)
    : context_(context),
      gated_(spec.gated()),
      up_(context, layers.up),
      down_(context, layers.down) {}

void Mlp::add_bias(const at::Tensor& up) const {
  with_type(context_.compute, [&]<class T>(T) {
    kernels::add_bias(elements<T>(up), up_.bias()->values(), up.size(0), up.size(1));
  });
}

at::Tensor Mlp::activate(const at::Tensor& up) const {
  const TimedSpan span = context_.timed("activation");
  const std::int64_t rows = up.size(0), width = up.size(1) / (gated_ ? 2 : 1);
  const at::Tensor out = empty_tensor({rows, width}, context_.compute);
  const float* bias = up_.bias() ? up_.bias()->values() : nullptr;
  with_type(context_.compute, [&]<class T>(T) {
    if (!gated_) {
      kernels::bias_gelu_forward(elements<T>(up), bias, rows, width, elements<T>(out));
      return;
    }
    kernels::swiglu_forward(elements<T>(up), rows, width, elements<T>(out));
  });
  return out;
}

at::Tensor Mlp::activate_backward(const at::Tensor& d_activated, const at::Tensor& up) {
  const TimedSpan span = context_.timed("activation backward");
  const std::int64_t rows = up.size(0), width = d_activated.size(1);
  const float* bias = up_.bias() ? up_.bias()->values() : nullptr;
  float* d_bias = up_.bias() ? up_.bias()->gradient() : nullptr;
  const at::Tensor d_up = empty_tensor(up.sizes(), context_.compute);
  with_type(context_.compute, [&]<class T>(T) {
    if (!gated_) {
      kernels::bias_gelu_backward(elements<T>(d_activated), elements<T>(up), bias, rows, width,
                                  elements<T>(d_up), d_bias);
      return;
    }
    kernels::swiglu_backward(elements<T>(d_activated), elements<T>(up), rows, width,
                             elements<T>(d_up));
    if (d_bias) kernels::column_sums(elements<T>(d_up), rows, d_up.size(1), d_bias);
  });
  return d_up;
}

Async<at::Tensor> Mlp::forward(const at::Tensor& x, Saved& saved) const {
  co_await restore(x, saved);
  co_return co_await down_.forward(saved.activated);
}

Async<void> Mlp::restore(const at::Tensor& x, Saved& saved) const {
  if (!saved.up.defined()) {
    saved.up = co_await up_.forward(x);
    if (gated_ && up_.bias()) add_bias(saved.up);
  }
  if (!saved.activated.defined()) saved.activated = activate(saved.up);
}

Async<at::Tensor> Mlp::backward(const at::Tensor& x, const at::Tensor& d_output,
                                const Saved& saved) {
  const at::Tensor d_activated = co_await down_.backward(saved.activated, d_output);
  co_return co_await up_.backward(x, activate_backward(d_activated, saved.up));
}

}  // namespace fourfold
