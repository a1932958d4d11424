#include "kernels/activation.h"

#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {
namespace {

// The rows' factors (or their gradients) from row b on; null where there are none.
template <class Float>
Float* from_row(Float* row_scale, std::int64_t b) {
  return row_scale == nullptr ? nullptr : row_scale + b;
}

}  // namespace

template <class T>
void bias_gelu_forward(const T* x, const float* bias, std::int64_t rows, std::int64_t cols, T* y,
                       const float* row_scale) {
  parallel_ranges(rows, 2 * cols, [&](std::int64_t b, std::int64_t e) {
    tables().activation.get<T>().bias_gelu_forward(x + b * cols, bias, e - b, cols, y + b * cols,
                                                   from_row(row_scale, b));
  });
}

template <class T>
void bias_gelu_backward(const T* dy, const T* x, const float* bias, std::int64_t rows,
                        std::int64_t cols, T* dx, float* dbias, const float* row_scale,
                        float* drow_scale) {
  with_row_sums(rows, 2 * cols, cols, dbias, [&](std::int64_t b, std::int64_t e, float* sums) {
    tables().activation.get<T>().bias_gelu_backward(dy + b * cols, x + b * cols, bias, e - b, cols,
                                                    dx + b * cols, sums, from_row(row_scale, b),
                                                    from_row(drow_scale, b));
  });
}

template <class T>
void swiglu_forward(const T* gate_up, std::int64_t rows, std::int64_t width, T* out,
                    const float* row_scale) {
  parallel_ranges(rows, 2 * width, [&](std::int64_t b, std::int64_t e) {
    tables().activation.get<T>().swiglu_forward(gate_up + b * 2 * width, e - b, width,
                                                out + b * width, from_row(row_scale, b));
  });
}

template <class T>
void swiglu_backward(const T* dout, const T* gate_up, std::int64_t rows, std::int64_t width,
                     T* dgate_up, const float* row_scale, float* drow_scale) {
  parallel_ranges(rows, 2 * width, [&](std::int64_t b, std::int64_t e) {
    tables().activation.get<T>().swiglu_backward(dout + b * width, gate_up + b * 2 * width, e - b,
                                                 width, dgate_up + b * 2 * width,
                                                 from_row(row_scale, b), from_row(drow_scale, b));
  });
}

#define FF_INSTANTIATE(T)                                                                    \
  template void bias_gelu_forward<T>(const T*, const float*, std::int64_t, std::int64_t, T*, \
                                     const float*);                                          \
  template void bias_gelu_backward<T>(const T*, const T*, const float*, std::int64_t,        \
                                      std::int64_t, T*, float*, const float*, float*);       \
  template void swiglu_forward<T>(const T*, std::int64_t, std::int64_t, T*, const float*);   \
  template void swiglu_backward<T>(const T*, const T*, std::int64_t, std::int64_t, T*,       \
                                   const float*, float*);
FF_INSTANTIATE(float)
FF_INSTANTIATE(BFloat16)
#undef FF_INSTANTIATE

}  // namespace fourfold::kernels
