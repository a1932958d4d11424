#pragma once

#include <cstdint>

#include "base/bfloat16.h"

/// Rows moved by index: what permuting tokens by expert and back consists of. Index arithmetic and
/// elements stay apart: an index may be used forward and, by its dual, backward.
namespace fourfold::kernels {

/// to[i] = from[index[i]] for i < count; rows are dense, `row_bytes` each. An index may come again.
void gather_rows(const void* from, std::int64_t row_bytes, const std::int32_t* index,
                 std::int64_t count, void* to);

/// to[index[i]] = from[i] for i < count; no index may come twice. Other rows are left as they were.
void scatter_rows(const void* from, std::int64_t row_bytes, const std::int32_t* index,
                  std::int64_t count, void* to);

/// out[t] = Σ_j rows[index[t·per_row + j]] over j < per_row in ascending order, in float and
/// rounded once; a negative index stands for zeros. T is float or BFloat16; rows and out are dense
/// [., cols] and apart.
template <class T>
void sum_rows(const T* rows, std::int64_t cols, const std::int32_t* index, std::int64_t out_rows,
              int per_row, T* out);

}  // namespace fourfold::kernels
