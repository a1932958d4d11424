#include "kernels/elementwise.h"

#include "kernels/vector/tables.h"
#include "kernels/vector/vec.h"

namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

template <class From, class To>
void convert(const From* from, To* to, std::int64_t n) {
  for_lanes(n, [&](std::int64_t i, auto count) { store(to + i, load(from + i, count), count); });
}

template <class T>
void accumulate(float* sum, const T* x, std::int64_t n) {
  for_lanes(n, [&](std::int64_t i, auto count) {
    store(sum + i, load(sum + i, count) + load(x + i, count), count);
  });
}

template <class T>
void scale(T* x, float factor, std::int64_t n) {
  for_lanes(n, [&](std::int64_t i, auto count) {
    store(x + i, load(x + i, count) * splat(factor), count);
  });
}

template <class T>
void add(const T* a, const T* b, T* out, std::int64_t n) {
  for_lanes(n, [&](std::int64_t i, auto count) {
    store(out + i, load(a + i, count) + load(b + i, count), count);
  });
}

template <class T>
void add_bias(T* x, const float* bias, std::int64_t rows, std::int64_t cols) {
  for (std::int64_t row = 0; row < rows; ++row) {
    T* at = x + row * cols;
    for_lanes(cols, [&](std::int64_t i, auto count) {
      store(at + i, load(at + i, count) + load(bias + i, count), count);
    });
  }
}

template <class T>
void add_scaled_bias(T* x, const float* bias, const float* row_scale, std::int64_t rows,
                     std::int64_t cols) {
  for (std::int64_t row = 0; row < rows; ++row) {
    T* at = x + row * cols;
    const F factor = splat(row_scale[row]);
    for_lanes(cols, [&](std::int64_t i, auto count) {
      store(at + i, fma(load(bias + i, count), factor, load(at + i, count)), count);
    });
  }
}

template <class T>
void scaled_bias_backward(const T* dy, const float* bias, const float* row_scale, std::int64_t rows,
                          std::int64_t cols, float* dbias, float* drow_scale) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* at = dy + row * cols;
    const F factor = splat(row_scale[row]);
    F dot{};
    for_lanes(cols, [&](std::int64_t i, auto count) {
      const F d = load(at + i, count);
      dot = fma(d, load(bias + i, count), dot);  // Beyond a tail d and the bias are 0.
      store(dbias + i, fma(d, factor, load(dbias + i, count)), count);
    });
    drow_scale[row] = sum(dot);
  }
}

template <class T>
void column_sums(const T* x, std::int64_t rows, std::int64_t cols, float* sums) {
  for (std::int64_t row = 0; row < rows; ++row) accumulate(sums, x + row * cols, cols);
}

template <class T>
void rotate_row(T* row, std::int64_t heads, std::int64_t head_dim, const float* table,
                bool inverse) {
  const std::int64_t half = head_dim / 2;
  const F sign = splat(inverse ? -1.0f : 1.0f);
  for (std::int64_t head = 0; head < heads; ++head) {
    T* low = row + head * head_dim;
    T* high = low + half;
    for_lanes(half, [&](std::int64_t i, auto count) {
      const F c = load(table + i, count), s = load(table + half + i, count) * sign;
      const F a = load(low + i, count), b = load(high + i, count);
      store(low + i, fma(a, c, -(b * s)), count);
      store(high + i, fma(b, c, a * s), count);
    });
  }
}

template <class T>
ElementwiseTable<T> table() {
  return {accumulate<T>,           scale<T>,       add<T>,       add_bias<T>, add_scaled_bias<T>,
          scaled_bias_backward<T>, column_sums<T>, rotate_row<T>};
}

}  // namespace

void fill(ForBoth<ElementwiseTable>& tables) { tables = {table<float>(), table<BFloat16>()}; }

void fill(CastTable& table) { table = {convert<float, BFloat16>, convert<BFloat16, float>}; }

}  // namespace fourfold::kernels::CPU_CAPABILITY
