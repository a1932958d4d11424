#pragma once

#include <cstdint>

#include "base/bfloat16.h"

/// Look-up of rows in a shard [vocab_begin, vocab_begin + vocab_rows) of an embedding table, and
/// learned positions. T is float or BFloat16, gradients are float.
namespace fourfold::kernels {

/// out[row] = table[tokens[row] - vocab_begin] where the shard holds the token, else zeros.
/// table [vocab_rows, cols], out [rows, cols].
template <class T>
void embedding_forward(const std::int64_t* tokens, const T* table, std::int64_t vocab_begin,
                       std::int64_t vocab_rows, std::int64_t rows, std::int64_t cols, T* out);

/// grad[tokens[row] - vocab_begin] += dout[row], rows in ascending order whatever the threads.
template <class T>
void embedding_backward(const std::int64_t* tokens, const T* dout, std::int64_t vocab_begin,
                        std::int64_t vocab_rows, std::int64_t rows, std::int64_t cols, float* grad);

/// out[i] += table[first_position + row mod seq] with row = row0 + i.
template <class T>
void position_forward(const T* table, std::int64_t seq, std::int64_t first_position,
                      std::int64_t row0, std::int64_t rows, std::int64_t cols, T* out);

/// grad[first_position + row mod seq] += dout[row], rows in ascending order.
template <class T>
void position_backward(const T* dout, std::int64_t seq, std::int64_t first_position,
                       std::int64_t rows, std::int64_t cols, float* grad);

}  // namespace fourfold::kernels
