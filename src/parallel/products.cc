#include "parallel/products.h"

#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/mm_ops.h>

#include "device/tensors.h"
#include "kernels/elementwise.h"

namespace fourfold {

at::Tensor product_forward(const at::Tensor& x, const at::Tensor& w) {
  return at::_ops::mm::call(x, w.t());
}

at::Tensor product_input_gradient(const at::Tensor& dy, const at::Tensor& w) {
  return at::_ops::mm::call(dy, w);
}

void product_input_gradient(const at::Tensor& dy, const at::Tensor& w, at::Tensor out) {
  at::_ops::mm_out::call(dy, w, out);
}

void product_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& out,
                             bool accumulate) {
  at::Tensor target = out;
  if (dy.scalar_type() == at::kFloat) {
    if (accumulate) {
      at::_ops::addmm_out::call(out, dy.t(), x, 1, 1, target);
    } else {
      at::_ops::mm_out::call(dy.t(), x, target);
    }
    return;
  }
  // bf16: the product rounds once, the sum over micro-batches and ranks is in f32.
  const at::Tensor product = at::_ops::mm::call(dy.t(), x);
  if (accumulate) {
    kernels::accumulate(elements<float>(out), elements<BFloat16>(product), product.numel());
  } else {
    target.copy_(product);
  }
}

}  // namespace fourfold
