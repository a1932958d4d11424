#include "kernels/few_rows.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {
namespace {

void zero_rows(float* to, std::int64_t rows, std::int64_t cols, std::int64_t stride) {
  for (std::int64_t row = 0; row < rows; ++row) std::fill_n(to + row * stride, cols, 0.0f);
}

}  // namespace

std::int64_t few_rows_forward_limit() { return tables().few_rows.forward_rows; }
std::int64_t few_rows_gradient_limit() { return tables().few_rows.gradient_rows; }

void few_rows_forward(const float* x, const float* w, std::int64_t rows, std::int64_t n,
                      std::int64_t k, float* y, std::int64_t y_stride) {
  if (k == 0) return zero_rows(y, rows, n, y_stride);
  const FewRowsTable& table = tables().few_rows;
  const Scratch scratch(table.forward_scratch(rows, n, k));
  table.forward(x, w, rows, n, k, y, y_stride, scratch.data());
}

void few_rows_input_gradient(const float* dy, const float* w, std::int64_t w_stride,
                             std::int64_t rows, std::int64_t n, std::int64_t k, float* dx,
                             std::int64_t dx_stride) {
  if (n == 0) return zero_rows(dx, rows, k, dx_stride);
  const FewRowsTable& table = tables().few_rows;
  const Scratch scratch(table.input_gradient_scratch(rows, n, k));
  table.input_gradient(dy, w, w_stride, rows, n, k, dx, dx_stride, scratch.data());
}

void few_rows_weight_gradient(const float* dy, std::int64_t dy_stride, const float* x,
                              std::int64_t rows, std::int64_t n, std::int64_t k, float* dw,
                              bool accumulate) {
  if (rows == 0) {
    if (!accumulate) zero_rows(dw, n, k, k);
    return;
  }
  const FewRowsTable& table = tables().few_rows;
  const Scratch scratch(table.weight_gradient_scratch(rows, n, k));
  table.weight_gradient(dy, dy_stride, x, rows, n, k, dw, accumulate, scratch.data());
}

}  // namespace fourfold::kernels
