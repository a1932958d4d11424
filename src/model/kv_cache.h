#pragma once

#include <ATen/core/TensorBody.h>

#include <cstdint>

namespace fourfold {

/// Keys and values of one block's attention that generation has seen, of this rank's heads:
/// [sequences, kv_heads, capacity, head_dim] in the compute type.
struct KvCache {
  at::Tensor keys, values;
  std::int64_t length = 0;  ///< Positions filled.
};

}  // namespace fourfold
