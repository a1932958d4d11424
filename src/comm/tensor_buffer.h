#pragma once

#include "base/check.h"
#include "comm/buffer.h"
#include "device/tensors.h"

namespace fourfold {

/// The elements of a dense (contiguous) CPU tensor, which must stay alive, as must its storage,
/// until the operation that gets them is done.
inline Buffer buffer_of(const at::Tensor& tensor) {
  FF_CHECK(tensor.is_contiguous(), "a tensor of {} elements that is not contiguous",
           tensor.numel());
  return {tensor.mutable_data_ptr(), tensor.numel(), tensor_dtype(tensor)};
}

}  // namespace fourfold
