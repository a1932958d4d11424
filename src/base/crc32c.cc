#include "base/crc32c.h"

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

__attribute__((target("sse4.2"))) std::uint32_t update_chain(std::uint32_t state,
                                                             const unsigned char* p,
                                                             std::size_t size) {
  std::uint64_t s = state;
  for (; size >= 8; size -= 8, p += 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    s = __builtin_ia32_crc32di(s, word);
  }
  return update_portable(static_cast<std::uint32_t>(s), p, size);
}

/// Three chains side by side, joined at the end of each block: one alone is bound by the
/// instruction's latency.
__attribute__((target("sse4.2"))) std::uint32_t update_hardware(std::uint32_t state,
                                                                const unsigned char* p,
                                                                std::size_t size) {
  constexpr std::size_t kLane = 4096;
  static_assert(kLane % 8 == 0);
  constexpr std::uint32_t kPastOne = crc32c_detail::shift_by(kLane);
  constexpr std::uint32_t kPastTwo = crc32c_detail::shift_by(2 * kLane);
  if (size < 3 * kLane) return update_chain(state, p, size);
  while (size >= 3 * kLane) {
    std::uint64_t a = state, b = 0, c = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      std::uint64_t wa, wb, wc;
      std::memcpy(&wa, p + i, 8);
      std::memcpy(&wb, p + kLane + i, 8);
      std::memcpy(&wc, p + 2 * kLane + i, 8);
      a = __builtin_ia32_crc32di(a, wa);
      b = __builtin_ia32_crc32di(b, wb);
      c = __builtin_ia32_crc32di(c, wc);
    }
    state = crc32c_detail::multiply(static_cast<std::uint32_t>(a), kPastTwo) ^
            crc32c_detail::multiply(static_cast<std::uint32_t>(b), kPastOne) ^
            static_cast<std::uint32_t>(c);
    p += 3 * kLane;
    size -= 3 * kLane;
  }
  return update_chain(state, p, size);
}

#endif

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t previous) {
  const auto* p = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~update_hardware(~previous, p, size);
#endif
  return ~update_portable(~previous, p, size);
}

}  // namespace fourfold
