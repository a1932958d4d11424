#include "kernels/few_rows.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {

void few_rows_product(const float* x, const float* w, std::int64_t rows, std::int64_t n,
                      std::int64_t k, float* y, std::int64_t y_stride) {
  if (k == 0) {
    for (std::int64_t row = 0; row < rows; ++row) std::fill_n(y + row * y_stride, n, 0.0f);
    return;
  }
  const FewRowsTable& table = tables().few_rows;
  const Scratch scratch(table.scratch(rows, k));
  table.product(x, w, rows, n, k, y, y_stride, scratch.data());
}

}  // namespace fourfold::kernels
