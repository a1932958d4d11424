#include "parallel/linear.h"

#include "comm/tensor_buffer.h"
#include "parallel/products.h"

namespace fourfold {

Linear4D::Linear4D(const ParallelContext& context, const LinearSpec& spec)
    : context_(context),
      orientation_(spec.orientation),
      weights_(context, weight_specs(spec)),
      bias_(spec.bias ? std::make_unique<VectorBlock>(context, bias_specs(spec)) : nullptr) {}

at::Tensor Linear4D::forward(const at::Tensor& input) const {
  const at::Tensor output = product_forward(input, weights_.gather());
  Communicator& contraction = context_.grid.group({input_axis(orientation_)});
  contraction.all_reduce(buffer_of(output), ReduceOp::kSum).wait_stream();
  return output;
}

at::Tensor Linear4D::backward(const at::Tensor& input, const at::Tensor& d_output) {
  const at::Tensor d_input = product_input_gradient(d_output, weights_.gather());
  Communicator& outputs = context_.grid.group({output_axis(orientation_)});
  Work reduction = outputs.all_reduce(buffer_of(d_input), ReduceOp::kSum);
  const WeightBlock::GradientTarget target = weights_.gradient_target();
  product_weight_gradient(d_output, input, target.tensor, target.accumulate);
  weights_.add_gradient(target);
  reduction.wait_stream();
  return d_input;
}

}  // namespace fourfold
