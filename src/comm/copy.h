#pragma once

#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>

namespace fourfold {

/// Nothing where the two are one place, as in operations in place.
inline void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

/// Elements before those of `rank` in a buffer that holds counts[r] of each rank r.
inline std::int64_t offset_of(std::span<const std::int64_t> counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, std::int64_t{0});
}

}  // namespace fourfold
