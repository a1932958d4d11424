#pragma once

#include <cstdint>

namespace fourfold {

/// The CRC-32C of two runs of bytes put together, from the CRC of each and the length of the second
/// in bytes, without reading them again.
std::uint32_t crc32c_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_size);

}  // namespace fourfold
