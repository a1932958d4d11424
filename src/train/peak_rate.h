#pragma once

#include "base/dtype.h"
#include "comm/communicator.h"

namespace fourfold {

/// The best rate of a large product in this type that all ranks reach at the same time, summed over
/// them, in floating-point operations per second: what MFU is a share of when no machine file says
/// the peak. Takes some tens of milliseconds; collective over `world`.
double measure_peak_flops(DType compute, Communicator& world);

}  // namespace fourfold
