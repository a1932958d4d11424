#include "parallel/linear.h"

#include <algorithm>

#include "comm/await_work.h"
#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "parallel/overlap_scheduler.h"
#include "parallel/products.h"

namespace fourfold {

Linear4D::Linear4D(const ParallelContext& context, const LinearSpec& spec)
    : context_(context),
      stream_(context, spec.rows_over_x),
      orientation_(spec.orientation),
      weights_(context, weight_specs(spec)),
      bias_(spec.bias ? std::make_unique<VectorBlock>(context, bias_specs(spec)) : nullptr) {}

Async<at::Tensor> Linear4D::forward(const at::Tensor& input) const {
  const at::Tensor weight = weights_.gather();
  at::Tensor output;
  {
    const TimedSpan span = context_.timed("forward", name());
    output = product_forward(input, weight, context_.products);
  }
  if (input_axis(orientation_) == Axis::kX) co_return co_await stream_.sum(output);
  Communicator& contraction = context_.grid.group({Axis::kY});
  co_await finished(
      contraction.all_reduce(buffer_of(output), ReduceOp::kSum, forward_lane(context_)));
  co_return output;
}

at::Tensor Linear4D::input_gradient(const at::Tensor& d_output, const at::Tensor& weight) const {
  const TimedSpan span = context_.timed("dI", name());
  return product_input_gradient(d_output, weight, context_.products);
}

void Linear4D::add_weight_gradient(const at::Tensor& input, const at::Tensor& d_output) {
  const WeightBlock::GradientTarget target = weights_.gradient_target();
  {
    const TimedSpan span = context_.timed("dW", name());
    product_weight_gradient(d_output, input, target.tensor, target.accumulate, context_.products);
  }
  weights_.add_gradient(target);
}

Lane Linear4D::lane() const {
  return context_.overlap ? context_.overlap->reduce_lane() : Lane::kCaller;
}

StreamRows::Moving Linear4D::start_sum(const at::Tensor& partial) const {
  if (output_axis(orientation_) == Axis::kX) return stream_.start_sum(partial, lane());
  Communicator& y = context_.grid.group({Axis::kY});
  return {partial, partial, y.all_reduce(buffer_of(partial), ReduceOp::kSum, lane())};
}

Async<at::Tensor> Linear4D::backward(const at::Tensor& input, const at::Tensor& d_output) {
  const at::Tensor weight = weights_.gather();
  const std::int64_t rows = std::max(input.size(0), d_output.size(0));
  const at::Tensor d_rows = co_await stream_.gather(d_output, rows);
  // Where nothing is summed over the outputs' axis, dW goes first: its sum over z then runs behind
  // dI.
  const bool sums = context_.size(output_axis(orientation_)) > 1;
  if (!sums) add_weight_gradient(input, d_rows);
  StreamRows::Moving whole_input{input, input, {}};
  if (input.size(0) < rows) whole_input = stream_.start_gather(input, rows, lane());
  StreamRows::Moving d_input = start_sum(input_gradient(d_rows, weight));
  if (sums) {
    whole_input.work.wait_stream();
    add_weight_gradient(whole_input.whole, d_rows);
  }
  co_await finished(std::move(d_input.work));
  co_return d_input.part;
}

}  // namespace fourfold
