#include "parallel/linear.h"

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

at::Tensor Linear4D::forward(const at::Tensor& input) const {
  const at::Tensor weight = weights_.gather();
  Communicator& contraction = context_.grid.group({input_axis(orientation_)});
  const int chunks = context_.overlap ? context_.overlap->options().forward_chunks : 1;
  if (chunks > 1 && contraction.size() > 1) {
    return forward_in_chunks(input, weight, contraction, chunks);
  }
  at::Tensor output;
  {
    const TimedSpan span = context_.timed("forward", name());
    output = product_forward(input, weight);
  }
  contraction.all_reduce(buffer_of(output), ReduceOp::kSum).wait_stream();
  return output;
}

at::Tensor Linear4D::forward_in_chunks(const at::Tensor& input, const at::Tensor& weight,
                                       Communicator& contraction, int chunks) const {
  const at::Tensor output = empty_tensor({input.size(0), weight.size(0)}, context_.compute);
  std::vector<Work> reductions;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const Range rows = split_range(input.size(0), chunks, chunk);
    if (rows.size() == 0) continue;
    const at::Tensor part = rows_of(output, rows.begin, rows.end);
    {
      const TimedSpan span = context_.timed("forward", name());
      product_forward(rows_of(input, rows.begin, rows.end), weight, part);
    }
    reductions.push_back(contraction.all_reduce(buffer_of(part), ReduceOp::kSum, Lane::kReduce));
  }
  for (Work& reduction : reductions) reduction.wait_stream();
  return output;
}

at::Tensor Linear4D::input_gradient(const at::Tensor& d_output, const at::Tensor& weight) const {
  const TimedSpan span = context_.timed("dI", name());
  return product_input_gradient(d_output, weight);
}

void Linear4D::add_weight_gradient(const at::Tensor& input, const at::Tensor& d_output) {
  const WeightBlock::GradientTarget target = weights_.gradient_target();
  {
    const TimedSpan span = context_.timed("dW", name());
    product_weight_gradient(d_output, input, target.tensor, target.accumulate);
  }
  weights_.add_gradient(target);
}

at::Tensor Linear4D::backward(const at::Tensor& input, const at::Tensor& d_output) {
  const at::Tensor weight = weights_.gather();
  Communicator& outputs = context_.grid.group({output_axis(orientation_)});
  // Where nothing is summed over the outputs' axis, dW goes first: its sum over z then runs behind
  // dI.
  if (outputs.size() == 1) {
    add_weight_gradient(input, d_output);
    return input_gradient(d_output, weight);
  }
  const at::Tensor d_input = input_gradient(d_output, weight);
  const Lane lane = context_.overlap ? context_.overlap->reduce_lane() : Lane::kCaller;
  Work reduction = outputs.all_reduce(buffer_of(d_input), ReduceOp::kSum, lane);
  add_weight_gradient(input, d_output);
  reduction.wait_stream();
  return d_input;
}

}  // namespace fourfold
