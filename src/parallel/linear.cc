#include "parallel/linear.h"

#include "comm/await_work.h"
#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "parallel/overlap_scheduler.h"
#include "parallel/products.h"

namespace fourfold {

Linear4D::Linear4D(const ParallelContext& context, const LinearSpec& spec)
    : context_(context),
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
  Communicator& contraction = context_.grid.group({input_axis(orientation_)});
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

Async<at::Tensor> Linear4D::backward(const at::Tensor& input, const at::Tensor& d_output) {
  const at::Tensor weight = weights_.gather();
  Communicator& outputs = context_.grid.group({output_axis(orientation_)});
  // Where nothing is summed over the outputs' axis, dW goes first: its sum over z then runs behind
  // dI.
  if (outputs.size() == 1) add_weight_gradient(input, d_output);
  const at::Tensor d_input = input_gradient(d_output, weight);
  const Lane lane = context_.overlap ? context_.overlap->reduce_lane() : Lane::kCaller;
  Work reduction = outputs.all_reduce(buffer_of(d_input), ReduceOp::kSum, lane);
  if (outputs.size() > 1) add_weight_gradient(input, d_output);
  co_await finished(std::move(reduction));
  co_return d_input;
}

}  // namespace fourfold
