#pragma once

#include <ATen/core/TensorBody.h>

#include "base/bfloat16.h"
#include "base/dtype.h"

namespace fourfold {

at::ScalarType scalar_type(DType dtype);
DType tensor_dtype(const at::Tensor& tensor);

/// A new dense CPU tensor; empty_tensor's elements are whatever was there.
at::Tensor empty_tensor(at::IntArrayRef shape, DType dtype);
at::Tensor zero_tensor(at::IntArrayRef shape, DType dtype);

/// The same values in another type, rounded to nearest even; `tensor` itself where it has the type.
at::Tensor as_type(const at::Tensor& tensor, DType dtype);

/// Rows begin ≤ i < end of dim 0, as a view.
at::Tensor rows_of(const at::Tensor& tensor, std::int64_t begin, std::int64_t end);

/// The elements, as the kernels name their types: float, BFloat16, std::int64_t.
template <class T>
T* elements(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

/// Calls f with a value of the activation type that `dtype` names, float or BFloat16: the bridge
/// from a tensor's type at run time to a kernel's at compile time.
template <class F>
decltype(auto) with_type(DType dtype, F&& f) {
  return dtype == DType::kBF16 ? f(BFloat16{}) : f(float{});
}

}  // namespace fourfold
