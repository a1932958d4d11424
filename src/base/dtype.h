#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fourfold {

/// Element types that are computed with, sent and stored.
enum class DType : std::uint8_t { kF32, kBF16, kF64, kI32, kI64, kU8 };

constexpr std::int64_t dtype_size(DType t) {
  switch (t) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

/// safetensors' names: "F32", "BF16", ...
constexpr std::string_view dtype_name(DType t) {
  switch (t) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF64:
      return "F64";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
  }
  return "?";
}

constexpr std::optional<DType> dtype_from_name(std::string_view name) {
  for (DType t : {DType::kF32, DType::kBF16, DType::kF64, DType::kI32, DType::kI64, DType::kU8}) {
    if (dtype_name(t) == name) return t;
  }
  return std::nullopt;
}

/// bfloat16 as its bits; conversions round to nearest even and keep NaN a NaN.
inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
inline std::uint16_t float_to_bf16(float f) {
  const auto bits = std::bit_cast<std::uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace fourfold
