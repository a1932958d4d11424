#include "kernels/cross_entropy.h"

#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {

template <class T>
void row_max(const T* logits, std::int64_t rows, std::int64_t cols, float* out) {
  parallel_ranges(rows, cols, [&](std::int64_t b, std::int64_t e) {
    tables().cross_entropy.get<T>().row_max(logits + b * cols, e - b, cols, out + b);
  });
}

template <class T>
void sum_exp_and_target(const T* logits, const float* max, const std::int64_t* targets,
                        std::int64_t vocab_begin, std::int64_t rows, std::int64_t cols,
                        float* sum_exp, float* target_logit) {
  parallel_ranges(rows, 2 * cols, [&](std::int64_t b, std::int64_t e) {
    tables().cross_entropy.get<T>().sum_exp_and_target(logits + b * cols, max + b, targets + b,
                                                       vocab_begin, e - b, cols, sum_exp + b,
                                                       target_logit + b);
  });
}

template <class T>
void softmax_gradient(T* logits, const float* max, const float* sum_exp,
                      const std::int64_t* targets, std::int64_t vocab_begin, const float* row_scale,
                      std::int64_t rows, std::int64_t cols) {
  parallel_ranges(rows, 2 * cols, [&](std::int64_t b, std::int64_t e) {
    tables().cross_entropy.get<T>().softmax_gradient(logits + b * cols, max + b, sum_exp + b,
                                                     targets + b, vocab_begin, row_scale + b, e - b,
                                                     cols);
  });
}

#define FF_INSTANTIATE(T)                                                                        \
  template void row_max<T>(const T*, std::int64_t, std::int64_t, float*);                        \
  template void sum_exp_and_target<T>(const T*, const float*, const std::int64_t*, std::int64_t, \
                                      std::int64_t, std::int64_t, float*, float*);               \
  template void softmax_gradient<T>(T*, const float*, const float*, const std::int64_t*,         \
                                    std::int64_t, const float*, std::int64_t, std::int64_t);
FF_INSTANTIATE(float)
FF_INSTANTIATE(BFloat16)
#undef FF_INSTANTIATE

}  // namespace fourfold::kernels
