#pragma once

#include <cstddef>
#include <cstdint>

namespace fourfold {

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) of `size` bytes, continuing from the CRC
/// of what came before (0 at the start). Uses the processor's instruction where there is one.
std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t previous = 0);

}  // namespace fourfold
