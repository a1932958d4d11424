#include "kernels/elementwise.h"

#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {

void cast(const float* from, BFloat16* to, std::int64_t n) {
  parallel_elements(
      n, [&](std::int64_t b, std::int64_t e) { tables().cast.to_bf16(from + b, to + b, e - b); });
}

void cast(const BFloat16* from, float* to, std::int64_t n) {
  parallel_elements(
      n, [&](std::int64_t b, std::int64_t e) { tables().cast.to_float(from + b, to + b, e - b); });
}

template <class T>
void accumulate(float* sum, const T* x, std::int64_t n) {
  parallel_elements(n, [&](std::int64_t b, std::int64_t e) {
    tables().elementwise.get<T>().accumulate(sum + b, x + b, e - b);
  });
}

template <class T>
void scale(T* x, float factor, std::int64_t n) {
  parallel_elements(n, [&](std::int64_t b, std::int64_t e) {
    tables().elementwise.get<T>().scale(x + b, factor, e - b);
  });
}

template <class T>
void add(const T* a, const T* b, T* out, std::int64_t n) {
  parallel_elements(n, [&](std::int64_t first, std::int64_t last) {
    tables().elementwise.get<T>().add(a + first, b + first, out + first, last - first);
  });
}

template <class T>
void add_bias(T* x, const float* bias, std::int64_t rows, std::int64_t cols) {
  parallel_ranges(rows, cols, [&](std::int64_t b, std::int64_t e) {
    tables().elementwise.get<T>().add_bias(x + b * cols, bias, e - b, cols);
  });
}

template <class T>
void add_scaled_bias(T* x, const float* bias, const float* row_scale, std::int64_t rows,
                     std::int64_t cols) {
  parallel_ranges(rows, cols, [&](std::int64_t b, std::int64_t e) {
    tables().elementwise.get<T>().add_scaled_bias(x + b * cols, bias, row_scale + b, e - b, cols);
  });
}

template <class T>
void scaled_bias_backward(const T* dy, const float* bias, const float* row_scale, std::int64_t rows,
                          std::int64_t cols, float* dbias, float* drow_scale) {
  with_row_sums(rows, cols, cols, dbias, [&](std::int64_t b, std::int64_t e, float* part) {
    tables().elementwise.get<T>().scaled_bias_backward(dy + b * cols, bias, row_scale + b, e - b,
                                                       cols, part, drow_scale + b);
  });
}

template <class T>
void column_sums(const T* x, std::int64_t rows, std::int64_t cols, float* sums) {
  with_row_sums(rows, cols, cols, sums, [&](std::int64_t b, std::int64_t e, float* part) {
    tables().elementwise.get<T>().column_sums(x + b * cols, e - b, cols, part);
  });
}

#define FF_INSTANTIATE(T)                                                                       \
  template void accumulate<T>(float*, const T*, std::int64_t);                                  \
  template void scale<T>(T*, float, std::int64_t);                                              \
  template void add<T>(const T*, const T*, T*, std::int64_t);                                   \
  template void add_bias<T>(T*, const float*, std::int64_t, std::int64_t);                      \
  template void add_scaled_bias<T>(T*, const float*, const float*, std::int64_t, std::int64_t); \
  template void scaled_bias_backward<T>(const T*, const float*, const float*, std::int64_t,     \
                                        std::int64_t, float*, float*);                          \
  template void column_sums<T>(const T*, std::int64_t, std::int64_t, float*);
FF_INSTANTIATE(float)
FF_INSTANTIATE(BFloat16)
#undef FF_INSTANTIATE

}  // namespace fourfold::kernels
