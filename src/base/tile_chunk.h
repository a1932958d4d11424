#pragma once

#include <algorithm>
#include <cstdint>

namespace fourfold {

/// rows x cols, summed over depth.
struct ProductShape {
  std::int64_t rows, cols, depth;
};

/// What a product on tiles packs and multiplies at once, at the most: it bounds its memory, which
/// the memory model counts.
inline constexpr ProductShape kTileChunk{1024, 2048, 1024};

/// Elements of both factors that are packed at once.
constexpr std::int64_t packed_elements(ProductShape shape) {
  return (std::min(shape.rows, kTileChunk.rows) + std::min(shape.cols, kTileChunk.cols)) *
         std::min(shape.depth, kTileChunk.depth);
}

}  // namespace fourfold
