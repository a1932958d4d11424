#include "kernels/norm.h"

#include <cmath>

#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {
namespace {

template <class P>
P* at_row(P* p, std::int64_t row, std::int64_t stride = 1) {
  return p != nullptr ? p + row * stride : nullptr;
}

// dgain and dbias as one target of 2·cols: the sums of a part are [dgain | dbias].
struct GainBiasSums {
  GainBiasSums(std::int64_t cols, float* dgain, float* dbias)
      : cols_(cols), dgain_(dgain), dbias_(dbias), sums_(wanted() ? 2 * cols : 0) {
    for (std::int64_t i = 0; wanted() && i < 2 * cols; ++i) sums_.data()[i] = 0;
  }
  bool wanted() const { return dgain_ != nullptr || dbias_ != nullptr; }
  float* target() { return wanted() ? sums_.data() : nullptr; }
  float* dgain_of(float* part) const { return dgain_ != nullptr ? part : nullptr; }
  float* dbias_of(float* part) const { return dbias_ != nullptr ? part + cols_ : nullptr; }
  void finish() {
    for (std::int64_t i = 0; dgain_ != nullptr && i < cols_; ++i) dgain_[i] += sums_.data()[i];
    for (std::int64_t i = 0; dbias_ != nullptr && i < cols_; ++i) {
      dbias_[i] += sums_.data()[cols_ + i];
    }
  }

 private:
  std::int64_t cols_;
  float *dgain_, *dbias_;
  Scratch sums_;
};

}  // namespace

template <class T>
void rms_sum_squares(const T* x, std::int64_t rows, std::int64_t cols, float* sum_squares) {
  parallel_ranges(rows, cols, [&](std::int64_t b, std::int64_t e) {
    tables().norm.get<T>().rms_sum_squares(x + b * cols, e - b, cols, sum_squares + b);
  });
}

template <class T>
void row_mean_m2(const T* x, std::int64_t rows, std::int64_t cols, float* mean, float* m2) {
  parallel_ranges(rows, cols, [&](std::int64_t b, std::int64_t e) {
    tables().norm.get<T>().row_mean_m2(x + b * cols, e - b, cols, mean + b, m2 + b);
  });
}

void merge_mean_m2(const float* means, const float* m2s, const std::int64_t* counts,
                   std::int64_t parts, std::int64_t part_stride, std::int64_t rows, float* mean,
                   float* m2) {
  for (std::int64_t row = 0; row < rows; ++row) {
    double n = 0, merged_mean = 0, merged_m2 = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto count = static_cast<double>(counts[part]);
      if (count == 0) continue;
      const double delta = means[part * part_stride + row] - merged_mean;
      const double total = n + count;
      merged_mean += delta * count / total;
      merged_m2 += m2s[part * part_stride + row] + delta * delta * n * count / total;
      n = total;
    }
    mean[row] = static_cast<float>(merged_mean);
    m2[row] = static_cast<float>(merged_m2);
  }
}

void rstd_from_sum(const float* sum, std::int64_t rows, std::int64_t cols, float eps, float* rstd) {
  for (std::int64_t row = 0; row < rows; ++row) {
    rstd[row] = 1.0f / std::sqrt(sum[row] / static_cast<float>(cols) + eps);
  }
}

template <class T>
void norm_apply(const T* x, const float* mean, const float* rstd, const float* gain,
                const float* bias, std::int64_t rows, std::int64_t cols, T* y) {
  parallel_ranges(rows, cols, [&](std::int64_t b, std::int64_t e) {
    tables().norm.get<T>().norm_apply(x + b * cols, at_row(mean, b), rstd + b, gain, bias, e - b,
                                      cols, y + b * cols);
  });
}

template <class T>
void rms_norm_forward(const T* x, const float* gain, float eps, std::int64_t rows,
                      std::int64_t cols, T* y, float* rstd) {
  parallel_ranges(rows, cols, [&](std::int64_t b, std::int64_t e) {
    tables().norm.get<T>().rms_norm_forward(x + b * cols, gain, eps, e - b, cols, y + b * cols,
                                            rstd + b);
  });
}

template <class T>
void layer_norm_forward(const T* x, const float* gain, const float* bias, float eps,
                        std::int64_t rows, std::int64_t cols, T* y, float* mean, float* rstd) {
  parallel_ranges(rows, cols, [&](std::int64_t b, std::int64_t e) {
    tables().norm.get<T>().layer_norm_forward(x + b * cols, gain, bias, eps, e - b, cols,
                                              y + b * cols, mean + b, rstd + b);
  });
}

template <class T>
void norm_backward_sums(const T* dy, const T* x, const float* mean, const float* rstd,
                        const float* gain, std::int64_t rows, std::int64_t cols, float* sum_dy_g,
                        float* sum_dy_g_xhat) {
  parallel_ranges(rows, cols, [&](std::int64_t b, std::int64_t e) {
    tables().norm.get<T>().norm_backward_sums(dy + b * cols, x + b * cols, at_row(mean, b),
                                              rstd + b, gain, e - b, cols, at_row(sum_dy_g, b),
                                              sum_dy_g_xhat + b);
  });
}

template <class T>
void norm_backward_apply(const T* dy, const T* x, const float* mean, const float* rstd,
                         const float* gain, const float* sum_dy_g, const float* sum_dy_g_xhat,
                         std::int64_t global_cols, const T* residual, std::int64_t rows,
                         std::int64_t cols, T* dx, float* dgain, float* dbias) {
  GainBiasSums sums(cols, dgain, dbias);
  with_row_sums(
      rows, cols, 2 * cols, sums.target(), [&](std::int64_t b, std::int64_t e, float* part) {
        tables().norm.get<T>().norm_backward_apply(
            dy + b * cols, x + b * cols, at_row(mean, b), rstd + b, gain, at_row(sum_dy_g, b),
            sum_dy_g_xhat + b, global_cols, at_row(residual, b, cols), e - b, cols, dx + b * cols,
            sums.dgain_of(part), sums.dbias_of(part));
      });
  sums.finish();
}

template <class T>
void norm_backward(const T* dy, const T* x, const float* mean, const float* rstd, const float* gain,
                   const T* residual, std::int64_t rows, std::int64_t cols, T* dx, float* dgain,
                   float* dbias) {
  GainBiasSums sums(cols, dgain, dbias);
  with_row_sums(
      rows, cols, 2 * cols, sums.target(), [&](std::int64_t b, std::int64_t e, float* part) {
        tables().norm.get<T>().norm_backward(
            dy + b * cols, x + b * cols, at_row(mean, b), rstd + b, gain, at_row(residual, b, cols),
            e - b, cols, dx + b * cols, sums.dgain_of(part), sums.dbias_of(part));
      });
  sums.finish();
}

#define FF_INSTANTIATE(T)                                                                          \
  template void rms_sum_squares<T>(const T*, std::int64_t, std::int64_t, float*);                  \
  template void row_mean_m2<T>(const T*, std::int64_t, std::int64_t, float*, float*);              \
  template void norm_apply<T>(const T*, const float*, const float*, const float*, const float*,    \
                              std::int64_t, std::int64_t, T*);                                     \
  template void rms_norm_forward<T>(const T*, const float*, float, std::int64_t, std::int64_t, T*, \
                                    float*);                                                       \
  template void layer_norm_forward<T>(const T*, const float*, const float*, float, std::int64_t,   \
                                      std::int64_t, T*, float*, float*);                           \
  template void norm_backward_sums<T>(const T*, const T*, const float*, const float*,              \
                                      const float*, std::int64_t, std::int64_t, float*, float*);   \
  template void norm_backward_apply<T>(const T*, const T*, const float*, const float*,             \
                                       const float*, const float*, const float*, std::int64_t,     \
                                       const T*, std::int64_t, std::int64_t, T*, float*, float*);  \
  template void norm_backward<T>(const T*, const T*, const float*, const float*, const float*,     \
                                 const T*, std::int64_t, std::int64_t, T*, float*, float*);
FF_INSTANTIATE(float)
FF_INSTANTIATE(BFloat16)
#undef FF_INSTANTIATE

}  // namespace fourfold::kernels
