#include "kernels/cross_entropy.h"

#include <limits>

#include "kernels/vector/tables.h"
#include "kernels/vector/vec.h"

namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

template <class T>
FF_INLINE float max_of_row(const T* x, std::int64_t cols) {
  const F lowest = splat(-std::numeric_limits<float>::infinity());
  F best[4] = {lowest, lowest, lowest, lowest};
  for_lanes_by_four(cols, [&](std::int64_t i, auto count, int k) {
    const F v = load(x + i, count);
    if constexpr (std::is_same_v<decltype(count), All>) {
      best[k] = max(v, best[k]);  // In this order a NaN is passed over.
    } else {                      // Missing lanes are not 0 but absent.
      const F present = first_lanes(splat(1.0f), count);
      best[k] = max(present > F{} ? v : lowest, best[k]);
    }
  });
  return maximum(max(max(best[0], best[1]), max(best[2], best[3])));
}

template <class T>
void row_max(const T* logits, std::int64_t rows, std::int64_t cols, float* out) {
  for (std::int64_t row = 0; row < rows; ++row) out[row] = max_of_row(logits + row * cols, cols);
}

FF_INLINE bool holds(std::int64_t target, std::int64_t begin, std::int64_t cols) {
  return target >= begin && target < begin + cols;
}

template <class T>
void sum_exp_and_target(const T* logits, const float* max, const std::int64_t* targets,
                        std::int64_t vocab_begin, std::int64_t rows, std::int64_t cols,
                        float* sum_exp, float* target_logit) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const T* x = logits + row * cols;
    const F m = splat(max[row]);
    F s[4] = {};
    for_lanes_by_four(cols, [&](std::int64_t i, auto count, int k) {
      s[k] = s[k] + first_lanes(exp(load(x + i, count) - m), count);
    });
    sum_exp[row] = sum((s[0] + s[1]) + (s[2] + s[3]));
    const std::int64_t target = targets[row];
    target_logit[row] = target >= 0 && holds(target, vocab_begin, cols)
                            ? static_cast<float>(x[target - vocab_begin])
                            : 0.0f;
  }
}

template <class T>
void softmax_gradient(T* logits, const float* max, const float* sum_exp,
                      const std::int64_t* targets, std::int64_t vocab_begin, const float* row_scale,
                      std::int64_t rows, std::int64_t cols) {
  for (std::int64_t row = 0; row < rows; ++row) {
    T* x = logits + row * cols;
    const F m = splat(max[row]), factor = splat(row_scale[row] / sum_exp[row]);
    const std::int64_t target = targets[row];
    const bool here = target >= 0 && holds(target, vocab_begin, cols);
    F at_target{};  // Rounded once, after the subtraction.
    if (here) {
      const F logit = splat(static_cast<float>(x[target - vocab_begin]));
      at_target = exp(logit - m) * factor - splat(row_scale[row]);
    }
    for_lanes(cols, [&](std::int64_t i, auto count) {
      store(x + i, exp(load(x + i, count) - m) * factor, count);
    });
    if (here) store(x + (target - vocab_begin), at_target, std::int64_t{1});
  }
}

template <class T>
CrossEntropyTable<T> table() {
  return {row_max<T>, sum_exp_and_target<T>, softmax_gradient<T>};
}

}  // namespace

void fill(ForBoth<CrossEntropyTable>& tables) { tables = {table<float>(), table<BFloat16>()}; }

}  // namespace fourfold::kernels::CPU_CAPABILITY
