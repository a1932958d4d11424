#include "model/shared_experts.h"

#include "comm/await_work.h"
#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "kernels/elementwise.h"
#include "parallel/overlap_scheduler.h"
#include "parallel/products.h"

namespace fourfold {

SharedExperts::SharedExperts(const ParallelContext& context, const ModelSpec& spec,
                             const BlockLayers& layers)
    : context_(context), stream_(context, layers.up.rows_over_x), mlp_(context, spec, layers) {
  if (layers.moe->shared_gate) {
    gate_ = std::make_unique<WeightBlock>(
        context, std::vector<ParameterSpec>{router_weight_spec(*layers.moe->shared_gate)});
  }
}

void SharedExperts::add_to(ParameterUnit& unit) {
  unit.add(mlp_.up());
  unit.add(mlp_.down());
  if (gate_) unit.add(*gate_);
}

Async<at::Tensor> SharedExperts::forward(const at::Tensor& x, Saved& saved) const {
  const at::Tensor output = co_await mlp_.forward(x, saved.mlp);
  if (const VectorBlock* bias = mlp_.down().bias()) {
    with_type(context_.compute, [&]<class T>(T) {
      kernels::add_bias(elements<T>(output), bias->values(), output.size(0), output.size(1));
    });
  }
  if (!gate_) co_return output;
  const at::Tensor logits = product_forward(as_type(own_rows(x, output), DType::kF32),
                                            as_type(gate_->gather(), DType::kF32));
  Communicator& contraction = context_.grid.group({Axis::kY});
  const Lane lane = forward_lane(context_);
  co_await finished(contraction.all_reduce(buffer_of(logits), ReduceOp::kSum, lane));
  saved.output = output;
  saved.gate = logits.sigmoid();
  co_return as_type(output.mul(saved.gate), context_.compute);
}

Async<at::Tensor> SharedExperts::backward(const at::Tensor& x, const at::Tensor& d_output,
                                          const Saved& saved) {
  at::Tensor d_mlp = d_output, d_x_of_gate;
  if (gate_) {
    d_x_of_gate = co_await gate_backward(own_rows(x, d_output), d_output, saved);
    d_mlp = as_type(d_output.mul(saved.gate), context_.compute);
  }
  if (VectorBlock* bias = mlp_.down().bias()) {
    with_type(context_.compute, [&]<class T>(T) {
      kernels::column_sums(elements<T>(d_mlp), d_mlp.size(0), d_mlp.size(1), bias->gradient());
    });
  }
  at::Tensor d_x = co_await mlp_.backward(x, d_mlp, saved.mlp);
  if (d_x_of_gate.defined()) d_x.add_(d_x_of_gate);
  co_return d_x;
}

Async<at::Tensor> SharedExperts::gate_backward(const at::Tensor& x, const at::Tensor& d_output,
                                               const Saved& saved) {
  const at::Tensor weight = as_type(gate_->gather(), DType::kF32);
  // Of the token's factor: each y has some of the columns.
  const at::Tensor d_gate =
      as_type(d_output, DType::kF32).mul(as_type(saved.output, DType::kF32)).sum(1, true);
  Communicator& y = context_.grid.group({Axis::kY});
  const Lane lane = forward_lane(context_);
  co_await finished(y.all_reduce(buffer_of(d_gate), ReduceOp::kSum, lane));
  const at::Tensor d_logits = d_gate.mul(saved.gate.sub(saved.gate.square()));
  const WeightBlock::GradientTarget target = gate_->gradient_target();
  product_weight_gradient(d_logits, as_type(x, DType::kF32), target.tensor, target.accumulate);
  gate_->add_gradient(target);
  co_return product_input_gradient(d_logits, weight);
}

}  // namespace fourfold
