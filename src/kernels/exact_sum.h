#pragma once

#include <cstdint>

#include "base/bfloat16.h"
#include "base/exact_sum.h"

namespace fourfold::kernels {

/// Adds the exact squares of n elements to `sum`, and the number of infinities and NaNs to its
/// non-finite count. Leaves `sum` normalised. T is float or BFloat16.
template <class T>
void add_squares(const T* x, std::int64_t n, ExactSum& sum);

/// The same for the elements themselves (losses).
template <class T>
void add_values(const T* x, std::int64_t n, ExactSum& sum);

}  // namespace fourfold::kernels
