#include "kernels/norm.h"

#include "kernels/vector/tables.h"
#include "kernels/vector/vec.h"

namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

template <class T>
FF_INLINE float sum_squares(const T* x, std::int64_t cols) {
  F s[4] = {};
  for_lanes_by_four(cols, [&](std::int64_t i, auto count, int k) {
    const F v = load(x + i, count);
    s[k] = fma(v, v, s[k]);
  });
  return sum((s[0] + s[1]) + (s[2] + s[3]));
}

struct Moments {
  float mean, m2;
};

// Two passes over the row, the second from cache: never E[x²] - E[x]².
template <class T>
FF_INLINE Moments moments(const T* x, std::int64_t cols) {
  F s[4] = {};
  for_lanes_by_four(cols,
                    [&](std::int64_t i, auto count, int k) { s[k] = s[k] + load(x + i, count); });
  const float total = sum((s[0] + s[1]) + (s[2] + s[3]));
  const float mean = cols > 0 ? total / static_cast<float>(cols) : 0.0f;
  F m[4] = {};
  for_lanes_by_four(cols, [&](std::int64_t i, auto count, int k) {
    const F d = first_lanes(load(x + i, count) - splat(mean), count);
    m[k] = fma(d, d, m[k]);
  });
  return {mean, sum((m[0] + m[1]) + (m[2] + m[3]))};
}

FF_INLINE float inverse_root(float sum, std::int64_t cols, float eps) {
  return 1.0f / std::sqrt(sum / static_cast<float>(cols) + eps);
}

template <class T>
FF_INLINE void apply_row(const T* x, float mean, float rstd, const float* gain, const float* bias,
                         std::int64_t cols, T* y) {
  const F m = splat(mean), r = splat(rstd);
  if (bias != nullptr) {
    for_lanes(cols, [&](std::int64_t i, auto count) {
      const F xhat = (load(x + i, count) - m) * r;
      store(y + i, fma(xhat, load(gain + i, count), load(bias + i, count)), count);
    });
  } else {
    for_lanes(cols, [&](std::int64_t i, auto count) {
      const F xhat = (load(x + i, count) - m) * r;
      store(y + i, xhat * load(gain + i, count), count);
    });
  }
}

template <class T>
void rms_sum_squares(const T* x, std::int64_t rows, std::int64_t cols, float* out) {
  for (std::int64_t row = 0; row < rows; ++row) out[row] = sum_squares(x + row * cols, cols);
}

template <class T>
void row_mean_m2(const T* x, std::int64_t rows, std::int64_t cols, float* mean, float* m2) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const Moments of_row = moments(x + row * cols, cols);
    mean[row] = of_row.mean;
    m2[row] = of_row.m2;
  }
}

template <class T>
void norm_apply(const T* x, const float* mean, const float* rstd, const float* gain,
                const float* bias, std::int64_t rows, std::int64_t cols, T* y) {
  for (std::int64_t row = 0; row < rows; ++row) {
    apply_row(x + row * cols, mean != nullptr ? mean[row] : 0.0f, rstd[row], gain, bias, cols,
              y + row * cols);
  }
}

template <class T>
void rms_norm_forward(const T* x, const float* gain, float eps, std::int64_t rows,
                      std::int64_t cols, T* y, float* rstd) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* in = x + row * cols;
    rstd[row] = inverse_root(sum_squares(in, cols), cols, eps);
    apply_row(in, 0.0f, rstd[row], gain, nullptr, cols, y + row * cols);
  }
}

template <class T>
void layer_norm_forward(const T* x, const float* gain, const float* bias, float eps,
                        std::int64_t rows, std::int64_t cols, T* y, float* mean, float* rstd) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* in = x + row * cols;
    const Moments of_row = moments(in, cols);
    mean[row] = of_row.mean;
    rstd[row] = inverse_root(of_row.m2, cols, eps);
    apply_row(in, mean[row], rstd[row], gain, bias, cols, y + row * cols);
  }
}

struct BackwardSums {
  float dy_g, dy_g_xhat;
};

template <class T>
FF_INLINE BackwardSums backward_sums(const T* dy, const T* x, float mean, float rstd,
                                     const float* gain, std::int64_t cols) {
  const F m = splat(mean), r = splat(rstd);
  F a[4] = {}, b[4] = {};
  for_lanes_by_four(cols, [&](std::int64_t i, auto count, int k) {
    const F g = load(dy + i, count) * load(gain + i, count);  // 0 in the lanes beyond the tail.
    a[k] = a[k] + g;
    b[k] = fma(g, (load(x + i, count) - m) * r, b[k]);
  });
  return {sum((a[0] + a[1]) + (a[2] + a[3])), sum((b[0] + b[1]) + (b[2] + b[3]))};
}

template <class T>
void norm_backward_sums(const T* dy, const T* x, const float* mean, const float* rstd,
                        const float* gain, std::int64_t rows, std::int64_t cols, float* sum_dy_g,
                        float* sum_dy_g_xhat) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const BackwardSums s = backward_sums(dy + row * cols, x + row * cols,
                                         mean != nullptr ? mean[row] : 0.0f, rstd[row], gain, cols);
    if (mean != nullptr) sum_dy_g[row] = s.dy_g;
    sum_dy_g_xhat[row] = s.dy_g_xhat;
  }
}

template <class T>
struct BackwardRow {
  const T *dy, *x, *residual;
  T* dx;
  float mean, rstd;
  float c1, c2;  // sum_dy_g and sum_dy_g_xhat over the number of columns.
};

template <bool kResidual, bool kDgain, bool kDbias, class T>
FF_INLINE void backward_row(const BackwardRow<T>& row, const float* gain, std::int64_t cols,
                            float* dgain, float* dbias) {
  const F m = splat(row.mean), r = splat(row.rstd), c1 = splat(row.c1), c2 = splat(row.c2);
  for_lanes(cols, [&](std::int64_t i, auto count) {
    const F dy = load(row.dy + i, count);
    const F xhat = (load(row.x + i, count) - m) * r;
    const F centred = dy * load(gain + i, count) - fma(xhat, c2, c1);
    F dx = r * centred;
    if constexpr (kResidual) dx = dx + load(row.residual + i, count);
    store(row.dx + i, dx, count);
    if constexpr (kDgain) store(dgain + i, fma(dy, xhat, load(dgain + i, count)), count);
    if constexpr (kDbias) store(dbias + i, dy + load(dbias + i, count), count);
  });
}

template <class T>
FF_INLINE void backward_any_row(const BackwardRow<T>& row, const float* gain, std::int64_t cols,
                                float* dgain, float* dbias) {
  if (row.residual != nullptr) {
    if (dgain != nullptr && dbias != nullptr) {
      return backward_row<true, true, true>(row, gain, cols, dgain, dbias);
    }
    if (dgain != nullptr) return backward_row<true, true, false>(row, gain, cols, dgain, dbias);
    if (dbias != nullptr) return backward_row<true, false, true>(row, gain, cols, dgain, dbias);
    return backward_row<true, false, false>(row, gain, cols, dgain, dbias);
  }
  if (dgain != nullptr && dbias != nullptr) {
    return backward_row<false, true, true>(row, gain, cols, dgain, dbias);
  }
  if (dgain != nullptr) return backward_row<false, true, false>(row, gain, cols, dgain, dbias);
  if (dbias != nullptr) return backward_row<false, false, true>(row, gain, cols, dgain, dbias);
  return backward_row<false, false, false>(row, gain, cols, dgain, dbias);
}

template <class T>
FF_INLINE BackwardRow<T> backward_task(const T* dy, const T* x, const float* mean,
                                       const float* rstd, const T* residual, T* dx,
                                       std::int64_t row, std::int64_t cols, BackwardSums sums,
                                       std::int64_t global_cols) {
  const float n = static_cast<float>(global_cols);
  const std::int64_t at = row * cols;
  return {dy + at,
          x + at,
          residual != nullptr ? residual + at : nullptr,
          dx + at,
          mean != nullptr ? mean[row] : 0.0f,
          rstd[row],
          mean != nullptr ? sums.dy_g / n : 0.0f,
          sums.dy_g_xhat / n};
}

template <class T>
void norm_backward_apply(const T* dy, const T* x, const float* mean, const float* rstd,
                         const float* gain, const float* sum_dy_g, const float* sum_dy_g_xhat,
                         std::int64_t global_cols, const T* residual, std::int64_t rows,
                         std::int64_t cols, T* dx, float* dgain, float* dbias) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const BackwardSums sums{mean != nullptr ? sum_dy_g[row] : 0.0f, sum_dy_g_xhat[row]};
    backward_any_row(backward_task(dy, x, mean, rstd, residual, dx, row, cols, sums, global_cols),
                     gain, cols, dgain, dbias);
  }
}

template <class T>
void norm_backward(const T* dy, const T* x, const float* mean, const float* rstd, const float* gain,
                   const T* residual, std::int64_t rows, std::int64_t cols, T* dx, float* dgain,
                   float* dbias) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const BackwardSums sums = backward_sums(
        dy + row * cols, x + row * cols, mean != nullptr ? mean[row] : 0.0f, rstd[row], gain, cols);
    backward_any_row(backward_task(dy, x, mean, rstd, residual, dx, row, cols, sums, cols), gain,
                     cols, dgain, dbias);
  }
}

template <class T>
NormTable<T> table() {
  return {rms_sum_squares<T>,    row_mean_m2<T>,        norm_apply<T>,          rms_norm_forward<T>,
          layer_norm_forward<T>, norm_backward_sums<T>, norm_backward_apply<T>, norm_backward<T>};
}

}  // namespace

void fill(ForBoth<NormTable>& tables) { tables = {table<float>(), table<BFloat16>()}; }

}  // namespace fourfold::kernels::CPU_CAPABILITY
