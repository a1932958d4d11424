#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "comm/communicator.h"

namespace fourfold {

/// Every out[i][0..count) := op over r of in[r][0..count), in ascending r: bf16 and f32 accumulate
/// in fp32 and round once, the others in their own type (integers wrap; their average is cut
/// towards zero). A NaN wins max and min. An output may be one of the inputs; else they do not
/// overlap.
void reduce_ascending(DType dtype, ReduceOp op, std::span<const void* const> in,
                      std::span<void* const> out, std::int64_t count);

}  // namespace fourfold
