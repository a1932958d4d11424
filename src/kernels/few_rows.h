#pragma once

#include <cstdint>

namespace fourfold::kernels {

/// y = x [rows, k] · wᵀ, w [n, k] and x dense, the rows of y `y_stride` apart; on the calling
/// thread alone. For few rows (to some two hundred), where a library spends its time on packing the
/// weights and waiting for them: here x is packed, and the weights are read once, fetched ahead.
void few_rows_product(const float* x, const float* w, std::int64_t rows, std::int64_t n,
                      std::int64_t k, float* y, std::int64_t y_stride);

}  // namespace fourfold::kernels
