#pragma once

#include <ATen/core/TensorBody.h>

#include "parallel/context.h"

namespace fourfold {

// Moving between tensors whose columns are split over y and tensors whose columns are whole. All
// are dense and 2-D; `width` is the number of columns over all y. Each pair is the other's dual.

/// [rows, columns of this y] → [rows, width]: all-gather over y, or over another axis that splits
/// the columns.
at::Tensor gather_columns(const ParallelContext& context, const at::Tensor& part,
                          std::int64_t width, Axis axis = Axis::kY);
/// [rows, width], a partial sum on each y → [rows, columns of this y]: reduce-scatter over y.
at::Tensor scatter_columns(const ParallelContext& context, const at::Tensor& whole);

/// [rows, columns of this y] → [rows of this y, width]: all-to-all over y, the rows cut as
/// split_range cuts them.
at::Tensor exchange_rows_for_columns(const ParallelContext& context, const at::Tensor& part,
                                     std::int64_t width);
/// [rows of this y, width] → [rows, columns of this y]: the way back; `rows` over all y.
at::Tensor exchange_columns_for_rows(const ParallelContext& context, const at::Tensor& whole,
                                     std::int64_t rows);

}  // namespace fourfold
