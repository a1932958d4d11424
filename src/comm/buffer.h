#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace fourfold {

/// A dense run of elements that somebody else owns and that stays where it is until the operation
/// that got it is done.
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kF32;
  std::int64_t bytes() const { return count * dtype_size(dtype); }
};

struct ConstBuffer {
  const void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kF32;

  ConstBuffer() = default;
  ConstBuffer(const void* d, std::int64_t n, DType t) : data(d), count(n), dtype(t) {}
  ConstBuffer(const Buffer& b) : data(b.data), count(b.count), dtype(b.dtype) {}  // NOLINT
  std::int64_t bytes() const { return count * dtype_size(dtype); }
};

}  // namespace fourfold
