#pragma once

#include <ATen/core/TensorBody.h>

#include "base/dtype.h"
#include "layout/region.h"

namespace fourfold {

at::ScalarType scalar_type(DType dtype);
DType dtype_of(const at::Tensor& tensor);

/// A new dense CPU tensor; empty_tensor's elements are whatever was there.
at::Tensor empty_tensor(at::IntArrayRef shape, DType dtype);
at::Tensor zero_tensor(at::IntArrayRef shape, DType dtype);

/// Rows begin..end of dim 0, as a view.
at::Tensor rows_of(const at::Tensor& tensor, Range rows);

}  // namespace fourfold
