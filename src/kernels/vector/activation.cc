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

FF_INLINE F gelu_slope(F x) {
  const F s = gelu_sigmoid(x);
  const F inner_slope = splat(kTwoRootTwoOverPi) * fma(x * x, splat(3.0f * kCubic), splat(1.0f));
  return fma(x * s * (splat(1.0f) - s), inner_slope, s);
}

template <class T, class Count>
FF_INLINE F biased(const T* x, const float* bias, std::int64_t i, Count count) {
  const F v = load(x + i, count);
  return bias != nullptr ? v + load(bias + i, count) : v;
}

template <class T>
void bias_gelu_forward(const T* x, const float* bias, std::int64_t rows, std::int64_t cols, T* y) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* in = x + row * cols;
    for_lanes(cols, [&](std::int64_t i, auto count) {
      const F v = biased(in, bias, i, count);
      store(y + row * cols + i, v * gelu_sigmoid(v), count);
    });
  }
}

template <class T>
void bias_gelu_backward(const T* dy, const T* x, const float* bias, std::int64_t rows,
                        std::int64_t cols, T* dx, float* dbias) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t at = row * cols;
    for_lanes(cols, [&](std::int64_t i, auto count) {
      const F d = load(dy + at + i, count) * gelu_slope(biased(x + at, bias, i, count));
      store(dx + at + i, d, count);
      if (dbias != nullptr) store(dbias + i, load(dbias + i, count) + d, count);
    });
  }
}

template <class T>
void swiglu_forward(const T* gate_up, std::int64_t rows, std::int64_t width, T* out) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* gate = gate_up + row * 2 * width;
    for_lanes(width, [&](std::int64_t i, auto count) {
      const F g = load(gate + i, count);
      store(out + row * width + i, g * sigmoid(g) * load(gate + width + i, count), count);
    });
  }
}

template <class T>
void swiglu_backward(const T* dout, const T* gate_up, std::int64_t rows, std::int64_t width,
                     T* dgate_up) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* gate = gate_up + row * 2 * width;
    T* dgate = dgate_up + row * 2 * width;
    for_lanes(width, [&](std::int64_t i, auto count) {
      const F g = load(gate + i, count), u = load(gate + width + i, count);
      const F d = load(dout + row * width + i, count);
      const F s = sigmoid(g);
      const F silu = g * s;
      store(dgate + i, d * u * fma(silu, splat(1.0f) - s, s), count);
      store(dgate + width + i, d * silu, count);
    });
  }
}

template <class T>
ActivationTable<T> table() {
  return {bias_gelu_forward<T>, bias_gelu_backward<T>, swiglu_forward<T>, swiglu_backward<T>};
}

}  // namespace

void fill(ForBoth<ActivationTable>& tables) { tables = {table<float>(), table<BFloat16>()}; }

}  // namespace fourfold::kernels::CPU_CAPABILITY
