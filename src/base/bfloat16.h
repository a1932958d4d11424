#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace fourfold {

/// A bfloat16 element, as memory holds it. The same two bytes as c10::BFloat16, so that a pointer
/// to a tensor's elements may be cast to it.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) : bits(float_to_bf16(value)) {}
  explicit operator float() const { return bf16_to_float(bits); }
};
static_assert(sizeof(BFloat16) == 2);

template <class T>
inline constexpr DType dtype_of = DType::kF32;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::kBF16;

}  // namespace fourfold
