#include "base/crc32c.h"

#include <array>
#include <cstring>

namespace fourfold {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78u;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) ? kPolynomial : 0);
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

/// Multiplies a CRC state by x^(8·bytes): the state after `bytes` zero bytes. Lets three
/// independent CRC chains be joined; one chain alone is bound by the instruction's latency.
std::uint32_t shift_by_zero_bytes(std::uint32_t state, std::size_t bytes) {
  // Square-and-multiply over GF(2) polynomials, reflected representation.
  auto multiply = [](std::uint32_t a, std::uint32_t b) {
    std::uint32_t product = 0;
    for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
      if (a & bit) product ^= b;
      b = (b >> 1) ^ ((b & 1) ? kPolynomial : 0);
    }
    return product;
  };
  std::uint32_t power = 0x00800000u;   // x^8.
  std::uint32_t factor = 0x80000000u;  // 1.
  for (std::size_t n = bytes; n > 0; n >>= 1) {
    if (n & 1) factor = multiply(factor, power);
    power = multiply(power, power);
  }
  return multiply(state, factor);
}

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

__attribute__((target("sse4.2"))) std::uint32_t update_hardware(std::uint32_t state,
                                                                const unsigned char* p,
                                                                std::size_t size) {
  constexpr std::size_t kLane = 4096;
  static_assert(kLane % 8 == 0);
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
    state = shift_by_zero_bytes(static_cast<std::uint32_t>(a), 2 * kLane) ^
            shift_by_zero_bytes(static_cast<std::uint32_t>(b), kLane) ^
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
