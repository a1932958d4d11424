#pragma once

#include <cstdint>

#include "base/bfloat16.h"
#include "base/philox.h"

/// Causal grouped-query attention in blocks (FlashAttention-2, Dao 2023): no score matrix in
/// memory, backward recomputes the probabilities from the saved log-sum-exp.
namespace fourfold::kernels {

/// Query i (of `queries`) sees keys 0 ... keys - queries + i: training has queries == keys,
/// generation with a cache queries < keys. Query heads h of a group of heads / kv_heads share key
/// head h / (heads / kv_heads). Scores are scaled by 1 / sqrt(head_dim).
struct AttentionShape {
  std::int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, head_dim = 0;
};

/// Where the elements of [batch, row, head, head_dim] are; strides in elements, head_dim dense.
template <class T>
struct HeadView {
  T* data = nullptr;
  std::int64_t batch_stride = 0, row_stride = 0, head_stride = 0;
  HeadView<const T> as_const() const { return {data, batch_stride, row_stride, head_stride}; }
};

/// Dense [batch·rows, heads·head_dim], as the attention's output.
template <class T>
HeadView<T> dense_heads(T* data, std::int64_t rows, std::int64_t heads, std::int64_t head_dim) {
  return {data, rows * heads * head_dim, heads * head_dim, head_dim};
}

/// The three parts of a fused buffer [batch·rows, (heads + 2·kv_heads)·head_dim].
template <class T>
struct QkvViews {
  HeadView<T> q, k, v;
};
template <class T>
QkvViews<T> fused_qkv(T* data, std::int64_t rows, std::int64_t heads, std::int64_t kv_heads,
                      std::int64_t head_dim) {
  const std::int64_t row = (heads + 2 * kv_heads) * head_dim;
  T* k = data + heads * head_dim;
  return {{data, rows * row, row, head_dim},
          {k, rows * row, row, head_dim},
          {k + kv_heads * head_dim, rows * row, row, head_dim}};
}

/// A cache [batch, kv_heads, capacity, head_dim].
template <class T>
HeadView<T> cache_heads(T* data, std::int64_t kv_heads, std::int64_t capacity,
                        std::int64_t head_dim) {
  return {data, kv_heads * capacity * head_dim, head_dim, capacity * head_dim};
}

/// Dropout of the probabilities, keyed by (sample, global head, query, key). The key of a step and
/// layer is words 0 and 1 of philox4x32({step, layer, 0, 0}, key); the probability of (query, key)
/// is kept when word (key mod 4) of philox4x32({key / 4, query, sample low, head | sample high <<
/// 16}, that key) is at least p·2³².
struct AttentionDropout {
  float p = 0;  ///< In [0, 1); 0 costs nothing.
  PhiloxKey key{};
  std::uint32_t step = 0, layer = 0;
  const std::int64_t* samples = nullptr;  ///< Global sample numbers, [batch]; null: 0, 1, ...
  std::int64_t first_head = 0;            ///< Global number of local query head 0.
};

/// out = softmax(q·kᵀ / sqrt(d))·v; lse is float [batch, heads, queries], or null when no backward
/// follows. T is float or BFloat16; sums are float.
template <class T>
void attention_forward(const AttentionShape& shape, HeadView<const T> q, HeadView<const T> k,
                       HeadView<const T> v, HeadView<T> out, float* lse,
                       const AttentionDropout& dropout);

/// Writes dq, dk and dv (k's and v's summed over the query heads of their group) from what forward
/// got and gave. Needs queries == keys. The gradients must not overlap the inputs, but dq may share
/// memory with dout or out when views and strides are the same.
template <class T>
void attention_backward(const AttentionShape& shape, HeadView<const T> q, HeadView<const T> k,
                        HeadView<const T> v, HeadView<const T> out, HeadView<const T> dout,
                        const float* lse, HeadView<T> dq, HeadView<T> dk, HeadView<T> dv,
                        const AttentionDropout& dropout);

}  // namespace fourfold::kernels
