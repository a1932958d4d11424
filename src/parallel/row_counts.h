#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "device/tensors.h"

namespace fourfold {

/// Rows to or from each rank of an exchange.
using RowCounts = std::vector<std::int64_t>;

inline std::int64_t sum(const RowCounts& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

/// Elements, where a row has so many columns.
inline RowCounts times(RowCounts rows, std::int64_t columns) {
  for (std::int64_t& r : rows) r *= columns;
  return rows;
}

/// A new tensor of that many rows, as wide as those of `like` and of its type.
inline at::Tensor room_for(std::int64_t rows, const at::Tensor& like) {
  return empty_tensor({rows, like.size(1)}, tensor_dtype(like));
}

}  // namespace fourfold
