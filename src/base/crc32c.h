#pragma once

#include <cstddef>
#include <cstdint>

namespace fourfold {

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) of `size` bytes, continuing from the CRC
/// of what came before (0 at the start). Uses the processor's instruction where there is one.
std::uint32_t crc32c(const void* data, std::size_t size, std::uint32_t previous = 0);

/// Copies as well: each word is read once, so that the CRC is that of the copy even where somebody
/// writes to the source meanwhile. The copy goes past the caches.
std::uint32_t copy_with_crc32c(void* to, const void* from, std::size_t size);

}  // namespace fourfold
