#include "kernels/rows.h"

#include <cstring>

#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {
namespace {

// Copies the row at from(i) to to(i) for every i.
template <class From, class To>
void copy_rows(std::int64_t row_bytes, std::int64_t count, From from, To to) {
  const auto cost = row_bytes / static_cast<std::int64_t>(sizeof(float));
  parallel_ranges(count, cost, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::memcpy(to(i), from(i), static_cast<std::size_t>(row_bytes));
    }
  });
}

}  // namespace

void gather_rows(const void* from, std::int64_t row_bytes, const std::int32_t* index,
                 std::int64_t count, void* to) {
  copy_rows(
      row_bytes, count,
      [&](std::int64_t i) { return static_cast<const char*>(from) + index[i] * row_bytes; },
      [&](std::int64_t i) { return static_cast<char*>(to) + i * row_bytes; });
}

void scatter_rows(const void* from, std::int64_t row_bytes, const std::int32_t* index,
                  std::int64_t count, void* to) {
  copy_rows(
      row_bytes, count,
      [&](std::int64_t i) { return static_cast<const char*>(from) + i * row_bytes; },
      [&](std::int64_t i) { return static_cast<char*>(to) + index[i] * row_bytes; });
}

template <class T>
void sum_rows(const T* rows, std::int64_t cols, const std::int32_t* index, std::int64_t out_rows,
              int per_row, T* out) {
  parallel_ranges(out_rows, cols * (per_row + 1), [&](std::int64_t b, std::int64_t e) {
    tables().rows.get<T>().sum_rows(rows, cols, index + b * per_row, e - b, per_row,
                                    out + b * cols);
  });
}

#define FF_INSTANTIATE(T) \
  template void sum_rows<T>(const T*, std::int64_t, const std::int32_t*, std::int64_t, int, T*);
FF_INSTANTIATE(float)
FF_INSTANTIATE(BFloat16)
#undef FF_INSTANTIATE

}  // namespace fourfold::kernels
