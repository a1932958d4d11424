#include "parallel/autograd.h"

#include <torch/csrc/autograd/custom_function.h>

#include "base/check.h"
#include "device/tensors.h"
#include "kernels/elementwise.h"
#include "parallel/redistribute.h"

namespace fourfold {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// What both passes know of the call; owned by the graph.
struct LinearCall : torch::CustomClassHolder {
  LinearCall(const ParallelContext& c, Linear4D& l) : context(c), layer(l) {}
  Axis inputs() const { return input_axis(layer.orientation()); }
  Axis outputs() const { return output_axis(layer.orientation()); }
  std::int64_t width(int dim) const {
    return layer.weights().parameters().front().spec.layout.shape[static_cast<std::size_t>(dim)];
  }

  const ParallelContext& context;
  Linear4D& layer;
  std::vector<std::int64_t> rows;  ///< Of the ranks that share them.
};

void add_bias(const LinearCall& call, const at::Tensor& y) {
  if (!call.layer.bias()) return;
  with_type(call.context.compute, [&]<class T>(T) {
    kernels::add_bias(elements<T>(y), call.layer.bias()->values(), y.size(0), y.size(1));
  });
}

void add_bias_gradient(const LinearCall& call, const at::Tensor& dy) {
  if (!call.layer.bias()) return;
  with_type(call.context.compute, [&]<class T>(T) {
    kernels::column_sums(elements<T>(dy), dy.size(0), dy.size(1), call.layer.bias()->gradient());
  });
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  /// `anchor` makes autograd call backward where x itself needs no gradient.
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& x, const at::Tensor& anchor,
                            const c10::intrusive_ptr<LinearCall>& call) {
    (void)anchor;
    const ParallelContext& context = call->context;
    call->rows = rows_of_ranks(context, x.size(0));
    const at::Tensor in = to_grid(context, x.contiguous(), call->rows, call->inputs());
    const at::Tensor y = run_to_end(call->layer.forward(in));
    add_bias(*call, y);
    saved->save_for_backward({in});
    saved->saved_data["call"] = c10::IValue::make_capsule(call);
    return from_grid(context, y, call->rows, call->outputs(), call->width(0));
  }

  static tensor_list backward(AutogradContext* saved, const tensor_list& gradients) {
    const auto capsule = saved->saved_data["call"].toCapsule();
    auto& call = static_cast<LinearCall&>(*capsule);
    const ParallelContext& context = call.context;
    const at::Tensor dy = to_grid(context, gradients[0].contiguous(), call.rows, call.outputs());
    add_bias_gradient(call, dy);
    const at::Tensor in = saved->get_saved_variables()[0];
    const at::Tensor dx = run_to_end(call.layer.backward(in, dy));
    return {from_grid(context, dx, call.rows, call.inputs(), call.width(1)), at::Tensor(),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor data_parallel_linear(const ParallelContext& context, Linear4D& layer,
                                const at::Tensor& x) {
  FF_CHECK(layer.weights().parameters().size() == 1, "a layer of {} members",
           layer.weights().parameters().size());
  FF_CHECK(!context.overlap, "a layer of a scheduler");
  at::Tensor anchor = empty_tensor({1}, context.compute);
  anchor.requires_grad_(true);
  return LinearFunction::apply(x, anchor, c10::make_intrusive<LinearCall>(context, layer));
}

}  // namespace fourfold
