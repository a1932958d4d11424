#include "kernels/qk_norm.h"

#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

// The groups of a row are a dense matrix, which the kernels of norm.h take: one call a row.
namespace fourfold::kernels {
namespace {

constexpr const float* kNoMean = nullptr;

template <class F>
void for_rows(const QkColumns& c, F f) {
  parallel_ranges(c.rows, c.groups * c.width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) f(row);
  });
}

template <class F>
void for_rows_with_sums(const QkColumns& c, float* target, F f) {
  with_row_sums(c.rows, c.groups * c.width, c.width, target,
                [&](std::int64_t begin, std::int64_t end, float* sums) {
                  for (std::int64_t row = begin; row < end; ++row) f(row, sums);
                });
}

}  // namespace

template <class T>
void qk_sum_squares(const T* x, const QkColumns& c, float* sum_squares) {
  for_rows(c, [&](std::int64_t row) {
    tables().norm.get<T>().rms_sum_squares(x + row * c.dense_stride, c.groups, c.width,
                                           sum_squares + row * c.groups);
  });
}

template <class T>
void qk_norm_apply(const T* x, const QkColumns& c, const float* rstd, const float* gain, T* fused) {
  for_rows(c, [&](std::int64_t row) {
    tables().norm.get<T>().norm_apply(x + row * c.dense_stride, kNoMean, rstd + row * c.groups,
                                      gain, /*bias=*/nullptr, c.groups, c.width,
                                      fused + row * c.fused_stride);
  });
}

template <class T>
void qk_norm_forward(const T* x, const QkColumns& c, const float* gain, float eps, T* fused,
                     float* rstd) {
  for_rows(c, [&](std::int64_t row) {
    tables().norm.get<T>().rms_norm_forward(x + row * c.dense_stride, gain, eps, c.groups, c.width,
                                            fused + row * c.fused_stride, rstd + row * c.groups);
  });
}

template <class T>
void qk_norm_backward_sums(const T* fused_dy, const T* x, const QkColumns& c, const float* rstd,
                           const float* gain, float* sums) {
  for_rows(c, [&](std::int64_t row) {
    tables().norm.get<T>().norm_backward_sums(
        fused_dy + row * c.fused_stride, x + row * c.dense_stride, kNoMean, rstd + row * c.groups,
        gain, c.groups, c.width, /*sum_dy_g=*/nullptr, sums + row * c.groups);
  });
}

template <class T>
void qk_norm_backward_apply(T* fused, const T* x, const QkColumns& c, const float* rstd,
                            const float* gain, const float* sums, std::int64_t global_width,
                            float* dgain) {
  for_rows_with_sums(c, dgain, [&](std::int64_t row, float* part) {
    T* d = fused + row * c.fused_stride;
    tables().norm.get<T>().norm_backward_apply(
        d, x + row * c.dense_stride, kNoMean, rstd + row * c.groups, gain, /*sum_dy_g=*/nullptr,
        sums + row * c.groups, global_width, /*residual=*/nullptr, c.groups, c.width, d, part,
        /*dbias=*/nullptr);
  });
}

template <class T>
void qk_norm_backward(T* fused, const T* x, const QkColumns& c, const float* rstd,
                      const float* gain, float* dgain) {
  for_rows_with_sums(c, dgain, [&](std::int64_t row, float* part) {
    T* d = fused + row * c.fused_stride;
    tables().norm.get<T>().norm_backward(d, x + row * c.dense_stride, kNoMean,
                                         rstd + row * c.groups, gain, /*residual=*/nullptr,
                                         c.groups, c.width, d, part, /*dbias=*/nullptr);
  });
}

#define FF_INSTANTIATE(T)                                                                        \
  template void qk_sum_squares<T>(const T*, const QkColumns&, float*);                           \
  template void qk_norm_apply<T>(const T*, const QkColumns&, const float*, const float*, T*);    \
  template void qk_norm_forward<T>(const T*, const QkColumns&, const float*, float, T*, float*); \
  template void qk_norm_backward_sums<T>(const T*, const T*, const QkColumns&, const float*,     \
                                         const float*, float*);                                  \
  template void qk_norm_backward_apply<T>(T*, const T*, const QkColumns&, const float*,          \
                                          const float*, const float*, std::int64_t, float*);     \
  template void qk_norm_backward<T>(T*, const T*, const QkColumns&, const float*, const float*,  \
                                    float*);
FF_INSTANTIATE(float)
FF_INSTANTIATE(BFloat16)
#undef FF_INSTANTIATE

}  // namespace fourfold::kernels
