#include "model/experts.h"

#include <utility>

#include "comm/await_work.h"
#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "kernels/activation.h"
#include "kernels/elementwise.h"
#include "layout/expert_grid.h"
#include "parallel/grouped_product.h"
#include "parallel/overlap_scheduler.h"

namespace fourfold {
namespace {

const std::vector<int>& experts_here(const ParallelContext& context, const MoeLayers& layers) {
  const ExpertGrid grid(context.shape().shape(), layers.map.ranks());
  return layers.map.of_rank(grid.place(context.coords()).rank);
}

/// The parameters of one linear of all experts of this rank, one expert after the other.
template <class Specs>
std::vector<ParameterSpec> specs_here(const ParallelContext& context, const MoeLayers& layers,
                                      LinearSpec ExpertLayers::* linear, Specs specs_of) {
  std::vector<ParameterSpec> all;
  for (const int e : experts_here(context, layers)) {
    for (ParameterSpec& spec : specs_of(layers.experts[static_cast<std::size_t>(e)].*linear)) {
      all.push_back(std::move(spec));
    }
  }
  return all;
}

std::unique_ptr<VectorBlock> biases_here(const ParallelContext& context, const MoeLayers& layers,
                                         LinearSpec ExpertLayers::* linear) {
  std::vector<ParameterSpec> specs = specs_here(context, layers, linear, bias_specs);
  return specs.empty() ? nullptr : std::make_unique<VectorBlock>(context, std::move(specs));
}

}  // namespace

Experts::Experts(const ParallelContext& context, const ModelSpec& spec, const MoeLayers& layers)
    : context_(context),
      gated_(spec.gated()),
      slots_(static_cast<std::int64_t>(experts_here(context, layers).size())),
      up_(context, specs_here(context, layers, &ExpertLayers::up, weight_specs), layers.up_name()),
      down_(context, specs_here(context, layers, &ExpertLayers::down, weight_specs),
            layers.down_name()),
      up_bias_(biases_here(context, layers, &ExpertLayers::up)),
      down_bias_(biases_here(context, layers, &ExpertLayers::down)) {
  up_width_ = up_.rows() / slots_;
  out_width_ = down_.rows() / slots_;
}

Experts::Part Experts::part(int chunks, int chunk, const std::vector<std::int64_t>& rows) const {
  return {split_range(slots_, chunks, chunk), &rows};
}

template <class F>
void Experts::each_expert(const Part& part, F f) {
  std::int64_t row = 0;
  for (std::int64_t slot = part.slots.begin; slot < part.slots.end; ++slot) {
    const std::int64_t rows = (*part.rows)[static_cast<std::size_t>(slot - part.slots.begin)];
    if (rows > 0) f(slot, row, rows);
    row += rows;
  }
}

void Experts::activate(const Part& part, Saved& saved) const {
  const std::int64_t width = up_width_ / (gated_ ? 2 : 1);
  saved.activated = empty_tensor({saved.up.size(0), width}, context_.compute);
  with_type(context_.compute, [&]<class T>(T) {
    each_expert(part, [&](std::int64_t slot, std::int64_t row, std::int64_t rows) {
      const T* in = elements<T>(saved.up) + row * up_width_;
      T* out = elements<T>(saved.activated) + row * width;
      const float* weights = elements<float>(saved.weights) + row;
      if (gated_) {
        kernels::swiglu_forward(in, rows, width, out, weights);
      } else {
        const float* bias = up_bias_ ? up_bias_->values() + slot * up_width_ : nullptr;
        kernels::bias_gelu_forward(in, bias, rows, width, out, weights);
      }
    });
  });
}

Async<void> Experts::restore(const Part& part, const at::Tensor& up, Saved& saved) const {
  if (!saved.up.defined()) {
    {
      const TimedSpan span = context_.timed("experts forward", up_.name());
      saved.up = empty_tensor({saved.input.size(0), up_width_}, context_.compute);
      grouped_product_forward(saved.input,
                              rows_of(up, part.slots.begin * up_width_, part.slots.end * up_width_),
                              *part.rows, saved.up, context_.products);
    }
    Communicator& contraction = context_.grid.group({Axis::kY});
    const Lane lane = forward_lane(context_);
    co_await finished(contraction.all_reduce(buffer_of(saved.up), ReduceOp::kSum, lane));
    if (gated_ && up_bias_) {
      with_type(context_.compute, [&]<class T>(T) {
        each_expert(part, [&](std::int64_t slot, std::int64_t row, std::int64_t rows) {
          kernels::add_bias(elements<T>(saved.up) + row * up_width_,
                            up_bias_->values() + slot * up_width_, rows, up_width_);
        });
      });
    }
  }
  if (!saved.activated.defined()) activate(part, saved);
}

Async<void> Experts::forward(const Part& part, const Gathered& gathered, Saved& saved,
                             const at::Tensor& output) const {
  co_await restore(part, gathered.up, saved);
  const TimedSpan span = context_.timed("experts forward", down_.name());
  grouped_product_forward(
      saved.activated,
      rows_of(gathered.down, part.slots.begin * out_width_, part.slots.end * out_width_),
      *part.rows, output, context_.products);
  if (down_bias_) add_down_bias(part, output, saved);
}

void Experts::add_down_bias(const Part& part, const at::Tensor& output, const Saved& saved) const {
  if (context_.coords().x != 0) return;
  with_type(context_.compute, [&]<class T>(T) {
    each_expert(part, [&](std::int64_t slot, std::int64_t row, std::int64_t rows) {
      kernels::add_scaled_bias(elements<T>(output) + row * out_width_,
                               down_bias_->values() + slot * out_width_,
                               elements<float>(saved.weights) + row, rows, out_width_);
    });
  });
}

at::Tensor Experts::activate_backward(const Part& part, const at::Tensor& d_activated,
                                      const Saved& saved, const at::Tensor& d_weights) {
  const std::int64_t width = d_activated.size(1);
  const at::Tensor d_up = empty_tensor(saved.up.sizes(), context_.compute);
  with_type(context_.compute, [&]<class T>(T) {
    each_expert(part, [&](std::int64_t slot, std::int64_t row, std::int64_t rows) {
      const T* dy = elements<T>(d_activated) + row * width;
      const T* x = elements<T>(saved.up) + row * up_width_;
      T* dx = elements<T>(d_up) + row * up_width_;
      const float* weights = elements<float>(saved.weights) + row;
      float* d_weight = elements<float>(d_weights) + row;
      const std::int64_t first = slot * up_width_;
      const float* bias = up_bias_ ? up_bias_->values() + first : nullptr;
      float* d_bias = up_bias_ ? up_bias_->gradient() + first : nullptr;
      if (!gated_) {
        kernels::bias_gelu_backward(dy, x, bias, rows, width, dx, d_bias, weights, d_weight);
        return;
      }
      kernels::swiglu_backward(dy, x, rows, width, dx, weights, d_weight);
      if (d_bias) kernels::column_sums(dx, rows, up_width_, d_bias);
    });
  });
  return d_up;
}

Async<void> Experts::down_bias_backward(const Part& part, const at::Tensor& d_output,
                                        const Saved& saved, const at::Tensor& d_weights) {
  // Each y has some columns of the row's product with the bias, which belongs to one x.
  const at::Tensor dots = empty_tensor(d_weights.sizes(), DType::kF32);
  with_type(context_.compute, [&]<class T>(T) {
    each_expert(part, [&](std::int64_t slot, std::int64_t row, std::int64_t rows) {
      kernels::scaled_bias_backward(
          elements<T>(d_output) + row * out_width_, down_bias_->values() + slot * out_width_,
          elements<float>(saved.weights) + row, rows, out_width_,
          down_bias_->gradient() + slot * out_width_, elements<float>(dots) + row);
    });
  });
  Communicator& y = context_.grid.group({Axis::kY});
  const Lane lane = forward_lane(context_);
  co_await finished(y.all_reduce(buffer_of(dots), ReduceOp::kSum, lane));
  if (context_.coords().x == 0) {
    kernels::accumulate(elements<float>(d_weights), elements<float>(dots), dots.numel());
  }
}

Async<void> Experts::backward(const Part& part, const Gathered& gathered, const Targets& targets,
                              const at::Tensor& d_output, const Saved& saved,
                              const Gradients& gradients) {
  const Range& slots = part.slots;
  auto rows_here = [&](const at::Tensor& block, std::int64_t width) {
    return rows_of(block, slots.begin * width, slots.end * width);
  };
  const at::Tensor d_activated = empty_tensor(saved.activated.sizes(), context_.compute);
  {
    const TimedSpan span = context_.timed("experts dI", down_.name());
    grouped_product_input_gradient(d_output, rows_here(gathered.down, out_width_), *part.rows,
                                   d_activated, context_.products);
  }
  Communicator& y = context_.grid.group({Axis::kY});
  const Lane lane = context_.overlap ? context_.overlap->reduce_lane() : Lane::kCaller;
  Work reduction = y.all_reduce(buffer_of(d_activated), ReduceOp::kSum, lane);
  {
    const TimedSpan span = context_.timed("experts dW", down_.name());
    grouped_product_weight_gradient(d_output, saved.activated, *part.rows,
                                    rows_here(targets.down.tensor, out_width_),
                                    targets.down.accumulate, context_.products);
  }
  co_await finished(std::move(reduction));
  const at::Tensor d_up = activate_backward(part, d_activated, saved, gradients.weights);
  if (down_bias_) co_await down_bias_backward(part, d_output, saved, gradients.weights);
  {
    const TimedSpan span = context_.timed("experts dI", up_.name());
    grouped_product_input_gradient(d_up, rows_here(gathered.up, up_width_), *part.rows,
                                   gradients.input, context_.products);
  }
  {
    const TimedSpan span = context_.timed("experts dW", up_.name());
    grouped_product_weight_gradient(d_up, saved.input, *part.rows,
                                    rows_here(targets.up.tensor, up_width_), targets.up.accumulate,
                                    context_.products);
  }
}

}  // namespace fourfold
