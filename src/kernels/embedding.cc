#include "kernels/embedding.h"

#include <cstring>

#include "kernels/parallel.h"
#include "kernels/vector/tables.h"

namespace fourfold::kernels {

template <class T>
void embedding_forward(const std::int64_t* tokens, const T* table, std::int64_t vocab_begin,
                       std::int64_t vocab_rows, std::int64_t rows, std::int64_t cols, T* out) {
  const auto row_bytes = static_cast<std::size_t>(cols) * sizeof(T);
  parallel_ranges(rows, cols, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t row = b; row < e; ++row) {
      const std::int64_t local = tokens[row] - vocab_begin;
      if (local >= 0 && local < vocab_rows) {
        std::memcpy(out + row * cols, table + local * cols, row_bytes);
      } else {
        std::memset(static_cast<void*>(out + row * cols), 0, row_bytes);
      }
    }
  });
}

template <class T>
void embedding_backward(const std::int64_t* tokens, const T* dout, std::int64_t vocab_begin,
                        std::int64_t vocab_rows, std::int64_t rows, std::int64_t cols,
                        float* grad) {
  // Each part owns the tokens that are `part` modulo the number of parts: frequent tokens have
  // small numbers, so ranges would be uneven.
  const std::int64_t parts = part_count(rows, cols);
  for_parts(parts, parts, [&](std::int64_t part, std::int64_t, std::int64_t) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t local = tokens[row] - vocab_begin;
      if (local < 0 || local >= vocab_rows || local % parts != part) continue;
      tables().elementwise.get<T>().accumulate(grad + local * cols, dout + row * cols, cols);
    }
  });
}

template <class T>
void position_forward(const T* table, std::int64_t seq, std::int64_t first_position,
                      std::int64_t row0, std::int64_t rows, std::int64_t cols, T* out) {
  parallel_ranges(rows, cols, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t row = b; row < e; ++row) {
      T* at = out + row * cols;
      const T* position = table + (first_position + (row0 + row) % seq) * cols;
      tables().elementwise.get<T>().add(at, position, at, cols);
    }
  });
}

template <class T>
void position_backward(const T* dout, std::int64_t seq, std::int64_t first_position,
                       std::int64_t rows, std::int64_t cols, float* grad) {
  parallel_ranges(seq < rows ? seq : rows, cols * ((rows + seq - 1) / seq),
                  [&](std::int64_t b, std::int64_t e) {
                    for (std::int64_t first = 0; first < rows; first += seq) {
                      for (std::int64_t i = b; i < e && first + i < rows; ++i) {
                        tables().elementwise.get<T>().accumulate(grad + (first_position + i) * cols,
                                                                 dout + (first + i) * cols, cols);
                      }
                    }
                  });
}

#define FF_INSTANTIATE(T)                                                                        \
  template void embedding_forward<T>(const std::int64_t*, const T*, std::int64_t, std::int64_t,  \
                                     std::int64_t, std::int64_t, T*);                            \
  template void embedding_backward<T>(const std::int64_t*, const T*, std::int64_t, std::int64_t, \
                                      std::int64_t, std::int64_t, float*);                       \
  template void position_forward<T>(const T*, std::int64_t, std::int64_t, std::int64_t,          \
                                    std::int64_t, std::int64_t, T*);                             \
  template void position_backward<T>(const T*, std::int64_t, std::int64_t, std::int64_t,         \
                                     std::int64_t, float*);
FF_INSTANTIATE(float)
FF_INSTANTIATE(BFloat16)
#undef FF_INSTANTIATE

}  // namespace fourfold::kernels
