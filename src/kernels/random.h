#pragma once

#include <cstdint>
#include <span>

#include "base/philox.h"

namespace fourfold::kernels {

/// One dim of a box of a global tensor: indices [begin, end) of `size`.
struct BoxDim {
  std::int64_t begin = 0, end = 0, size = 0;
};

/// Fills a dense buffer with the box's part of a global tensor of N(0, std²) numbers. Element i
/// (flat, row-major, 64 bits) of the global tensor is a function of (key, tensor_id, i) alone:
/// words of philox4x32({i / 4 low, i / 4 high, tensor_id, 0}, key), pairs (0, 1) and (2, 3) made
/// normal by Box and Muller's cosine (even i) and sine (odd i). The bits are the same for every
/// box, CPU and number of threads.
void fill_normal(float* out, std::span<const BoxDim> box, PhiloxKey key, std::uint32_t tensor_id,
                 float std);

}  // namespace fourfold::kernels
