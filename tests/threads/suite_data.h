#pragma once

#include <fmt/core.h>

#include <bit>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "base/crc32c.h"
#include "comm/communicator.h"

namespace fourfold::suite {

inline constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF64,
                                    DType::kI32, DType::kI64,  DType::kU8};
inline constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kAvg};

using Data = std::vector<std::byte>;

inline std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Element i of what a rank gives, as bits. Floats have magnitudes from 2^-12 to 2^12 and both
/// signs, so that another order of addition, or a rounding in between, changes bits.
inline std::uint64_t element(DType dtype, int rank, std::int64_t i, int salt) {
  const std::uint64_t h =
      scramble(static_cast<std::uint64_t>(i) * 1000003u + static_cast<std::uint64_t>(rank) * 7919u +
               static_cast<std::uint64_t>(salt) * 104729u + 1);
  const double sign = (h & 1) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>((h >> 1) % 25) - 12;
  const double value = sign * (1.0 + static_cast<double>(h >> 20) * 0x1p-44) *
                       (exponent < 0 ? 1.0 / (1 << -exponent) : 1 << exponent);
  switch (dtype) {
    case DType::kF32:
      return std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case DType::kBF16:
      return float_to_bf16(static_cast<float>(value));
    case DType::kF64:
      return std::bit_cast<std::uint64_t>(value);
    default:
      return h;  // Integers use as many low bits as they have.
  }
}

inline void store(DType dtype, void* base, std::int64_t i, std::uint64_t bits) {
  const auto size = static_cast<std::size_t>(dtype_size(dtype));
  std::memcpy(static_cast<std::byte*>(base) + static_cast<std::size_t>(i) * size, &bits, size);
}

/// Elements [first, first + count) of a rank's data.
inline Data make_data(DType dtype, int rank, std::int64_t count, int salt, std::int64_t first = 0) {
  Data data(static_cast<std::size_t>(count * dtype_size(dtype)));
  for (std::int64_t i = 0; i < count; ++i) {
    store(dtype, data.data(), i, element(dtype, rank, first + i, salt));
  }
  return data;
}

template <class A>
A reduce_pair(ReduceOp op, A a, A b) {
  if (op == ReduceOp::kMax) return a < b ? b : a;
  if (op == ReduceOp::kMin) return b < a ? b : a;
  if constexpr (std::is_integral_v<A>) {
    using U = std::make_unsigned_t<A>;
    return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

/// The reduction of element i over `ranks`, in their order, where each value becomes an A.
template <class A, class From, class To>
std::uint64_t reduce_as(ReduceOp op, DType dtype, const std::vector<int>& ranks, std::int64_t i,
                        int salt, From from, To to) {
  A sum = from(element(dtype, ranks[0], i, salt));
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    sum = reduce_pair<A>(op, sum, from(element(dtype, ranks[r], i, salt)));
  }
  if (op == ReduceOp::kAvg) sum = static_cast<A>(sum / static_cast<A>(ranks.size()));
  return to(sum);
}

inline std::uint64_t expected_reduction(ReduceOp op, DType dtype, const std::vector<int>& ranks,
                                        std::int64_t i, int salt) {
  using u32 = std::uint32_t;
  using u64 = std::uint64_t;
  switch (dtype) {
    case DType::kF32:
      return reduce_as<float>(
          op, dtype, ranks, i, salt,
          [](u64 b) { return std::bit_cast<float>(static_cast<u32>(b)); },
          [](float f) -> u64 { return std::bit_cast<u32>(f); });
    case DType::kBF16:
      return reduce_as<float>(
          op, dtype, ranks, i, salt,
          [](u64 b) { return bf16_to_float(static_cast<std::uint16_t>(b)); },
          [](float f) -> u64 { return float_to_bf16(f); });
    case DType::kF64:
      return reduce_as<double>(
          op, dtype, ranks, i, salt, [](u64 b) { return std::bit_cast<double>(b); },
          [](double f) -> u64 { return std::bit_cast<u64>(f); });
    case DType::kI32:
      return reduce_as<std::int32_t>(
          op, dtype, ranks, i, salt, [](u64 b) { return static_cast<std::int32_t>(b); },
          [](std::int32_t v) -> u64 { return static_cast<u32>(v); });
    case DType::kI64:
      return reduce_as<std::int64_t>(
          op, dtype, ranks, i, salt, [](u64 b) { return static_cast<std::int64_t>(b); },
          [](std::int64_t v) -> u64 { return static_cast<u64>(v); });
    case DType::kU8:
      return reduce_as<std::uint8_t>(
          op, dtype, ranks, i, salt, [](u64 b) { return static_cast<std::uint8_t>(b); },
          [](std::uint8_t v) -> u64 { return v; });
  }
  return 0;
}

/// Elements [first, first + count) of the reduction over `ranks`.
inline Data make_reduction(ReduceOp op, DType dtype, const std::vector<int>& ranks,
                           std::int64_t count, int salt, std::int64_t first = 0) {
  Data data(static_cast<std::size_t>(count * dtype_size(dtype)));
  for (std::int64_t i = 0; i < count; ++i) {
    store(dtype, data.data(), i, expected_reduction(op, dtype, ranks, first + i, salt));
  }
  return data;
}

/// Throws when the bytes differ; adds them to the checksum.
inline void expect_equal(const Data& got, const Data& want, const std::string& what,
                         std::uint32_t& checksum) {
  if (got != want) {
    std::size_t at = 0;
    while (at < std::min(got.size(), want.size()) && got[at] == want[at]) ++at;
    throw std::runtime_error(
        fmt::format("{}: wrong from byte {} of {} (of {})", what, at, got.size(), want.size()));
  }
  checksum = crc32c(got.data(), got.size(), checksum);
}

}  // namespace fourfold::suite
