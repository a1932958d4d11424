#include "kernels/activation.h"

#include "kernels/vector/tables.h"
#include "kernels/vector/vec.h"

namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

// gelu(x) = x·sigmoid(2u) with u = sqrt(2/π)·(x + 0.044715·x³): the tanh form, rewritten.
constexpr float kTwoRootTwoOverPi = 1.5957691216f;
constexpr float kCubic = 0.044715f;

FF_INLINE F gelu_sigmoid(F x) {
  const F inner = fma(x * x, splat(kCubic), splat(1.0f));
  return sigmoid(splat(kTwoRootTwoOverPi) * x * inner);
}

// gelu'(x), s being gelu_sigmoid(x).
FF_INLINE F gelu_slope(F x, F s) {
  const F inner_slope = splat(kTwoRootTwoOverPi) * fma(x * x, splat(3.0f * kCubic), splat(1.0f));
  return fma(x * s * (splat(1.0f) - s), inner_slope, s);
}

template <class T, class Count>
FF_INLINE F biased(const T* x, const float* bias, std::int64_t i, Count count) {
  const F v = load(x + i, count);
  return bias != nullptr ? v + load(bias + i, count) : v;
}

// The rows' factors are a case of the template: the plain forms pay nothing for them.
template <bool scaled, class T>
FF_INLINE void gelu_forward(const T* x, const float* bias, std::int64_t rows, std::int64_t cols,
                            T* y, const float* row_scale) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* in = x + row * cols;
    const F factor = splat(scaled ? row_scale[row] : 1.0f);
    for_lanes(cols, [&](std::int64_t i, auto count) {
      const F v = biased(in, bias, i, count), out = v * gelu_sigmoid(v);
      store(y + row * cols + i, scaled ? out * factor : out, count);
    });
  }
}

template <bool scaled, class T>
FF_INLINE void gelu_backward(const T* dy, const T* x, const float* bias, std::int64_t rows,
                             std::int64_t cols, T* dx, float* dbias, const float* row_scale,
                             float* drow_scale) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t at = row * cols;
    const F factor = splat(scaled ? row_scale[row] : 1.0f);
    F dfactor{};
    for_lanes(cols, [&](std::int64_t i, auto count) {
      const F v = biased(x + at, bias, i, count), s = gelu_sigmoid(v);
      F d = load(dy + at + i, count);
      if constexpr (scaled) {
        dfactor = fma(d, v * s, dfactor);  // Beyond a tail d and v are 0.
        d = d * factor;
      }
      d = d * gelu_slope(v, s);
      store(dx + at + i, d, count);
      if (dbias != nullptr) store(dbias + i, load(dbias + i, count) + d, count);
    });
    if constexpr (scaled) drow_scale[row] = sum(dfactor);
  }
}

template <bool scaled, class T>
FF_INLINE void gated_forward(const T* gate_up, std::int64_t rows, std::int64_t width, T* out,
                             const float* row_scale) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* gate = gate_up + row * 2 * width;
    const F factor = splat(scaled ? row_scale[row] : 1.0f);
    for_lanes(width, [&](std::int64_t i, auto count) {
      const F g = load(gate + i, count);
      const F y = g * sigmoid(g) * load(gate + width + i, count);
      store(out + row * width + i, scaled ? y * factor : y, count);
    });
  }
}

template <bool scaled, class T>
FF_INLINE void gated_backward(const T* dout, const T* gate_up, std::int64_t rows,
                              std::int64_t width, T* dgate_up, const float* row_scale,
                              float* drow_scale) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* gate = gate_up + row * 2 * width;
    T* dgate = dgate_up + row * 2 * width;
    const F factor = splat(scaled ? row_scale[row] : 1.0f);
    F dfactor{};
    for_lanes(width, [&](std::int64_t i, auto count) {
      const F g = load(gate + i, count), u = load(gate + width + i, count);
      F d = load(dout + row * width + i, count);
      const F s = sigmoid(g);
      const F silu = g * s;
      if constexpr (scaled) {
        dfactor = fma(d, silu * u, dfactor);  // Beyond a tail all are 0.
        d = d * factor;
      }
      store(dgate + i, d * u * fma(silu, splat(1.0f) - s, s), count);
      store(dgate + width + i, d * silu, count);
    });
    if constexpr (scaled) drow_scale[row] = sum(dfactor);
  }
}

template <class T>
void bias_gelu_forward(const T* x, const float* bias, std::int64_t rows, std::int64_t cols, T* y,
                       const float* row_scale) {
  if (row_scale == nullptr) return gelu_forward<false>(x, bias, rows, cols, y, row_scale);
  gelu_forward<true>(x, bias, rows, cols, y, row_scale);
}

template <class T>
void bias_gelu_backward(const T* dy, const T* x, const float* bias, std::int64_t rows,
                        std::int64_t cols, T* dx, float* dbias, const float* row_scale,
                        float* drow_scale) {
  if (row_scale == nullptr) {
    return gelu_backward<false>(dy, x, bias, rows, cols, dx, dbias, row_scale, drow_scale);
  }
  gelu_backward<true>(dy, x, bias, rows, cols, dx, dbias, row_scale, drow_scale);
}

template <class T>
void swiglu_forward(const T* gate_up, std::int64_t rows, std::int64_t width, T* out,
                    const float* row_scale) {
  if (row_scale == nullptr) return gated_forward<false>(gate_up, rows, width, out, row_scale);
  gated_forward<true>(gate_up, rows, width, out, row_scale);
}

template <class T>
void swiglu_backward(const T* dout, const T* gate_up, std::int64_t rows, std::int64_t width,
                     T* dgate_up, const float* row_scale, float* drow_scale) {
  if (row_scale == nullptr) {
    return gated_backward<false>(dout, gate_up, rows, width, dgate_up, row_scale, drow_scale);
  }
  gated_backward<true>(dout, gate_up, rows, width, dgate_up, row_scale, drow_scale);
}

template <class T>
ActivationTable<T> table() {
  return {bias_gelu_forward<T>, bias_gelu_backward<T>, swiglu_forward<T>, swiglu_backward<T>};
}

}  // namespace

void fill(ForBoth<ActivationTable>& tables) { tables = {table<float>(), table<BFloat16>()}; }

}  // namespace fourfold::kernels::CPU_CAPABILITY
