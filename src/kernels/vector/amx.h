#pragma once

#include "kernels/vector/vec.h"

/// Products of bf16 blocks with float sums on AMX tiles (Intel's Software Developer's Manual,
/// volume 2, TDPBF16PS). The caller's thread holds tiles only while a TileUse lives: oneDNN uses
/// them too, with a configuration of its own.
namespace fourfold::kernels::CPU_CAPABILITY {

/// All eight tiles as 16 rows of 64 bytes.
class TileUse {
 public:
  TileUse() {
    struct alignas(64) Config {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    _tile_loadconfig(&config);
  }
  ~TileUse() { _tile_release(); }
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;
};

/// C is rows x cols, the sum is over depth; all are multiples of 32.
struct AmxShape {
  std::int64_t rows, cols, depth;
};

/// Tiles 0 to 3 are two by two of sums, from memory with rows `bytes` apart or zero; tiles 4 and 5
/// are of the left operand and 6 and 7 of the right one, so that each that is loaded is used twice.
FF_INLINE void begin_sums(const float* sums, std::int64_t bytes, bool accumulate) {
  if (accumulate) {
    _tile_loadd(0, sums, bytes);
    _tile_loadd(1, sums + 16, bytes);
    _tile_loadd(2, sums + 4 * bytes, bytes);
    _tile_loadd(3, sums + 4 * bytes + 16, bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
}
FF_INLINE void multiply_tiles() {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}
FF_INLINE void end_sums(float* sums, std::int64_t bytes) {
  _tile_stored(0, sums, bytes);
  _tile_stored(1, sums + 16, bytes);
  _tile_stored(2, sums + 4 * bytes, bytes);
  _tile_stored(3, sums + 4 * bytes + 16, bytes);
}

/// C (+)= A·B: A [rows, depth] bf16 with a stride in elements, B in pairs [depth / 2][b_stride][2],
/// C float.
FF_INLINE void multiply_amx(const std::uint16_t* a, std::int64_t a_stride, const std::uint16_t* b,
                            std::int64_t b_stride, float* c, std::int64_t c_stride, AmxShape shape,
                            bool accumulate) {
  const std::int64_t a_bytes = 2 * a_stride, b_bytes = 4 * b_stride, c_bytes = 4 * c_stride;
  for (std::int64_t j = 0; j < shape.cols; j += 32) {
    for (std::int64_t i = 0; i < shape.rows; i += 32) {
      float* sums = c + i * c_stride + j;
      begin_sums(sums, c_bytes, accumulate);
      for (std::int64_t k = 0; k < shape.depth; k += 32) {
        const std::uint16_t* left = a + i * a_stride + k;
        const std::uint16_t* right = b + k * b_stride + 2 * j;
        _tile_loadd(4, left, a_bytes);
        _tile_loadd(5, left + 16 * a_stride, a_bytes);
        _tile_loadd(6, right, b_bytes);
        _tile_loadd(7, right + 32, b_bytes);
        multiply_tiles();
      }
      end_sums(sums, c_bytes);
    }
  }
}

}  // namespace fourfold::kernels::CPU_CAPABILITY
