#include "parallel/products.h"

#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/mm_ops.h>

#include "device/tensors.h"
#include "kernels/elementwise.h"
#include "kernels/tile_product.h"

namespace fourfold {
namespace {

// The matrix as a factor of a product: its columns are summed over, or its rows.
template <class T>
kernels::Factor<T> over_columns(const at::Tensor& matrix) {
  return {elements<T>(matrix), matrix.size(1)};
}
template <class T>
kernels::Factor<T> over_rows(const at::Tensor& matrix) {
  return {elements<T>(matrix), matrix.size(1), true};
}
template <class T>
kernels::ProductTarget<T> target_in(const at::Tensor& out, bool accumulate = false) {
  return {elements<T>(out), out.size(1), accumulate};
}

}  // namespace

at::Tensor product_forward(const at::Tensor& x, const at::Tensor& w, F32Products how) {
  if (x.scalar_type() != at::kFloat || how == F32Products::kF32) {
    return at::_ops::mm::call(x, w.t());
  }
  const at::Tensor out = empty_tensor({x.size(0), w.size(0)}, DType::kF32);
  kernels::tile_product(over_columns<float>(x), over_columns<float>(w),
                        {x.size(0), w.size(0), x.size(1)}, target_in<float>(out));
  return out;
}

at::Tensor product_input_gradient(const at::Tensor& dy, const at::Tensor& w, F32Products how) {
  const at::Tensor out = empty_tensor({dy.size(0), w.size(1)}, tensor_dtype(dy));
  product_input_gradient(dy, w, out, how);
  return out;
}

void product_input_gradient(const at::Tensor& dy, const at::Tensor& w, at::Tensor out,
                            F32Products how) {
  if (dy.scalar_type() != at::kFloat || how == F32Products::kF32) {
    at::_ops::mm_out::call(dy, w, out);
    return;
  }
  kernels::tile_product(over_columns<float>(dy), over_rows<float>(w),
                        {dy.size(0), w.size(1), dy.size(1)}, target_in<float>(out));
}

void product_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& out,
                             bool accumulate, F32Products how) {
  at::Tensor target = out;
  const ProductShape shape{dy.size(1), x.size(1), dy.size(0)};
  if (dy.scalar_type() == at::kFloat) {
    if (how == F32Products::kThreeBf16) {
      kernels::tile_product(over_rows<float>(dy), over_rows<float>(x), shape,
                            target_in<float>(out, accumulate));
    } else if (accumulate) {
      at::_ops::addmm_out::call(out, dy.t(), x, 1, 1, target);
    } else {
      at::_ops::mm_out::call(dy.t(), x, target);
    }
    return;
  }
  // LibTorch's product has to turn dy around and rounds its sums to bf16.
  if (kernels::has_tile_product()) {
    kernels::tile_product(over_rows<BFloat16>(dy), over_rows<BFloat16>(x), shape,
                          target_in<float>(out, accumulate));
    return;
  }
  // The product rounds once, the sum over micro-batches and ranks is in f32.
  const at::Tensor product = at::_ops::mm::call(dy.t(), x);
  if (accumulate) {
    kernels::accumulate(elements<float>(out), elements<BFloat16>(product), product.numel());
  } else {
    target.copy_(product);
  }
}

}  // namespace fourfold
