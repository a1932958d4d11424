#include "base/crc32c.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <array>
#include <cstring>

#include "base/crc32c_polynomial.h"

namespace fourfold {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) ? crc32c_detail::kPolynomial : 0);
    table[i] = c;
  }
  return table;
}

constexpr auto kTable = make_table();

std::uint32_t update_portable(std::uint32_t state, const unsigned char* p, std::size_t size) {
  for (; size > 0; --size, ++p) state = (state >> 8) ^ kTable[(state ^ *p) & 0xff];
  return state;
}

#if defined(__x86_64__)

/// The CRC of the word at p + at, which goes to to + at on the way, past the caches, where kCopies.
template <bool kCopies>
__attribute__((target("sse4.2"))) inline std::uint64_t step(std::uint64_t crc,
                                                            const unsigned char* p,
                                                            unsigned char* to, std::size_t at) {
  long long word;
  std::memcpy(&word, p + at, 8);
  if constexpr (kCopies) _mm_stream_si64(reinterpret_cast<long long*>(to + at), word);
  return __builtin_ia32_crc32di(crc, static_cast<std::uint64_t>(word));
}

/// Three chains side by side, joined at the end of each block: one alone is bound by the
/// instruction's latency.
template <bool kCopies>
__attribute__((target("sse4.2"))) std::uint32_t update_hardware(std::uint32_t state,
                                                                const unsigned char* p,
                                                                std::size_t size,
                                                                unsigned char* to) {
  constexpr std::size_t kLane = 4096;
  static_assert(kLane % 8 == 0);
  constexpr std::uint32_t kPastOne = crc32c_detail::shift_by(kLane);
  constexpr std::uint32_t kPastTwo = crc32c_detail::shift_by(2 * kLane);
  std::size_t at = 0;
  for (; size - at >= 3 * kLane; at += 3 * kLane) {
    std::uint64_t a = state, b = 0, c = 0;
    for (std::size_t i = at; i < at + kLane; i += 8) {
      a = step<kCopies>(a, p, to, i);
      b = step<kCopies>(b, p, to, i + kLane);
      c = step<kCopies>(c, p, to, i + 2 * kLane);
    }
    state = crc32c_detail::multiply(static_cast<std::uint32_t>(a), kPastTwo) ^
            crc32c_detail::multiply(static_cast<std::uint32_t>(b), kPastOne) ^
            static_cast<std::uint32_t>(c);
  }
  std::uint64_t rest = state;
  for (; size - at >= 8; at += 8) rest = step<kCopies>(rest, p, to, at);
  if constexpr (kCopies) {
    std::memcpy(to + at, p + at, size - at);
    _mm_sfence();
    p = to;
  }
  return update_portable(static_cast<std::uint32_t>(rest), p + at, size - at);
}

#endif

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t previous) {
  const auto* p = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~update_hardware<false>(~previous, p, size, nullptr);
#endif
  return ~update_portable(~previous, p, size);
}

std::uint32_t copy_with_crc32c(void* to, const void* from, std::size_t size) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    return ~update_hardware<true>(~0u, static_cast<const unsigned char*>(from), size,
                                  static_cast<unsigned char*>(to));
  }
#endif
  std::memcpy(to, from, size);
  return crc32c(to, size);
}

}  // namespace fourfold
