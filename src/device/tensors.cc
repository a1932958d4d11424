#include "device/tensors.h"

#include <ATen/ops/empty_ops.h>

#include "base/check.h"

namespace fourfold {

at::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kF64:
      return at::kDouble;
    case DType::kI32:
      return at::kInt;
    case DType::kI64:
      return at::kLong;
    case DType::kU8:
      return at::kByte;
  }
  FF_CHECK(false, "dtype {}", static_cast<int>(dtype));
}

DType tensor_dtype(const at::Tensor& tensor) {
  for (DType t : {DType::kF32, DType::kBF16, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
    if (tensor.scalar_type() == scalar_type(t)) return t;
  }
  FF_CHECK(false, "a tensor of type {}", static_cast<int>(tensor.scalar_type()));
}

at::Tensor empty_tensor(at::IntArrayRef shape, DType dtype) {
  return at::_ops::empty_memory_format::call(c10::fromIntArrayRefSlow(shape), scalar_type(dtype),
                                             at::kStrided, at::kCPU, false, std::nullopt);
}

at::Tensor zero_tensor(at::IntArrayRef shape, DType dtype) {
  return empty_tensor(shape, dtype).zero_();
}

at::Tensor as_type(const at::Tensor& tensor, DType dtype) {
  if (tensor_dtype(tensor) == dtype) return tensor;
  at::Tensor other = empty_tensor(tensor.sizes(), dtype);
  other.copy_(tensor);
  return other;
}

at::Tensor rows_of(const at::Tensor& tensor, std::int64_t begin, std::int64_t end) {
  return tensor.narrow(0, begin, end - begin);
}

}  // namespace fourfold
