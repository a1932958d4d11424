#include "base/crc32c_combine.h"

#include "base/crc32c_polynomial.h"

namespace fourfold {

std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_size) {
  // The inversions before and after a CRC cancel out between the two.
  return crc32c_detail::multiply(first, crc32c_detail::shift_by(second_size)) ^ second;
}

}  // namespace fourfold
