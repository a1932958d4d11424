#include "comm/reduce.h"

#include <cstring>
#include <type_traits>

#include "base/bfloat16.h"
#include "base/check.h"

namespace fourfold {
namespace {

template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

// Everything below is always inlined into two callers, which are compiled for the baseline and for
// AVX2. Only additions, comparisons and one division happen, so both give the same bits.
#define FF_INLINE [[gnu::always_inline]] inline

template <class T>
FF_INLINE Accumulator<T> load(T value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return bf16_to_float(value.bits);
  } else {
    return value;
  }
}

template <class T>
FF_INLINE T round_once(Accumulator<T> value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    // float_to_bf16 without a branch, which vectorises.
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t nan = (bits >> 16) | 0x40u;
    BFloat16 result;
    result.bits = static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
    return result;
  } else {
    return value;
  }
}

template <ReduceOp op, class A>
FF_INLINE A combine(A a, A b) {
  if constexpr (op == ReduceOp::kMax) {
    return (b > a || b != b) ? b : a;
  } else if constexpr (op == ReduceOp::kMin) {
    return (b < a || b != b) ? b : a;
  } else if constexpr (std::is_integral_v<A>) {
    using U = std::make_unsigned_t<A>;  // Signed overflow wraps instead of being undefined.
    return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

/// N elements at `begin`. N is a constant, because the compiler then vectorises without a
/// remainder; all inputs are read before an output is written, which makes aliasing harmless.
template <class T, ReduceOp op, int N>
FF_INLINE void reduce_block(std::span<const void* const> in, std::span<void* const> out,
                            std::int64_t begin) {
  using A = Accumulator<T>;
  alignas(64) A sum[N];
  const T* first = static_cast<const T*>(in[0]) + begin;
  for (int i = 0; i < N; ++i) sum[i] = load(first[i]);
  for (std::size_t r = 1; r < in.size(); ++r) {
    const T* next = static_cast<const T*>(in[r]) + begin;
    for (int i = 0; i < N; ++i) sum[i] = combine<op>(sum[i], load(next[i]));
  }
  if constexpr (op == ReduceOp::kAvg) {
    const A n = static_cast<A>(in.size());
    for (int i = 0; i < N; ++i) sum[i] = static_cast<A>(sum[i] / n);
  }
  alignas(64) T result[N];
  for (int i = 0; i < N; ++i) result[i] = round_once<T>(sum[i]);
  for (void* o : out) std::memcpy(static_cast<T*>(o) + begin, result, sizeof(result));
}

template <class T, ReduceOp op>
FF_INLINE void reduce_typed(std::span<const void* const> in, std::span<void* const> out,
                            std::int64_t count) {
  constexpr int kTile = 1024;  // Sum and result stay in the L1 cache.
  constexpr int kSmallTile = 32;
  std::int64_t i = 0;
  for (; i + kTile <= count; i += kTile) reduce_block<T, op, kTile>(in, out, i);
  for (; i + kSmallTile <= count; i += kSmallTile) reduce_block<T, op, kSmallTile>(in, out, i);
  for (; i < count; ++i) reduce_block<T, op, 1>(in, out, i);
}

template <class T>
FF_INLINE void reduce_op(ReduceOp op, std::span<const void* const> in, std::span<void* const> out,
                         std::int64_t count) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce_typed<T, ReduceOp::kSum>(in, out, count);
    case ReduceOp::kMax:
      return reduce_typed<T, ReduceOp::kMax>(in, out, count);
    case ReduceOp::kMin:
      return reduce_typed<T, ReduceOp::kMin>(in, out, count);
    case ReduceOp::kAvg:
      return reduce_typed<T, ReduceOp::kAvg>(in, out, count);
  }
}

FF_INLINE void reduce_dtype(DType dtype, ReduceOp op, std::span<const void* const> in,
                            std::span<void* const> out, std::int64_t count) {
  switch (dtype) {
    case DType::kF32:
      return reduce_op<float>(op, in, out, count);
    case DType::kBF16:
      return reduce_op<BFloat16>(op, in, out, count);
    case DType::kF64:
      return reduce_op<double>(op, in, out, count);
    case DType::kI32:
      return reduce_op<std::int32_t>(op, in, out, count);
    case DType::kI64:
      return reduce_op<std::int64_t>(op, in, out, count);
    case DType::kU8:
      return reduce_op<std::uint8_t>(op, in, out, count);
  }
}

void reduce_baseline(DType dtype, ReduceOp op, std::span<const void* const> in,
                     std::span<void* const> out, std::int64_t count) {
  reduce_dtype(dtype, op, in, out, count);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void reduce_avx2(DType dtype, ReduceOp op, std::span<const void* const> in,
                                         std::span<void* const> out, std::int64_t count) {
  reduce_dtype(dtype, op, in, out, count);
}
bool has_avx2() { return __builtin_cpu_supports("avx2") != 0; }
#else
constexpr auto reduce_avx2 = reduce_baseline;
bool has_avx2() { return false; }
#endif

}  // namespace

void reduce_ascending(DType dtype, ReduceOp op, std::span<const void* const> in,
                      std::span<void* const> out, std::int64_t count) {
  FF_CHECK(!in.empty(), "a reduction of {} elements over no input", count);
  if (has_avx2()) {
    reduce_avx2(dtype, op, in, out, count);
  } else {
    reduce_baseline(dtype, op, in, out, count);
  }
}

}  // namespace fourfold
