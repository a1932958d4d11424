#include "kernels/attention.h"

#include "kernels/vector/attention_block.h"
#include "kernels/vector/gemm.h"

namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

// rows x dim of strided T to dense floats of padded width, times `factor`; pads with zeros.
template <class T>
FF_INLINE void pack_rows(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t dim,
                         float factor, float* to) {
  const std::int64_t width = padded(dim);
  for (std::int64_t row = 0; row < rows; ++row) {
    if (row + kRowsAhead < rows) prefetch_row(from + (row + kRowsAhead) * stride, dim);
    for_lanes(dim, [&](std::int64_t i, auto count) {
      store(to + row * width + i, load(from + row * stride + i, count) * splat(factor), All{});
    });
  }
}

// rows x dim of padded floats to strided T, times `factor`.
template <class T>
FF_INLINE void unpack_rows(const float* from, std::int64_t rows, std::int64_t dim, float factor,
                           T* to, std::int64_t stride) {
  const std::int64_t width = padded(dim);
  for (std::int64_t row = 0; row < rows; ++row) {
    for_lanes(dim, [&](std::int64_t i, auto count) {
      store(to + row * stride + i, load(from + row * width + i, count) * splat(factor), count);
    });
  }
}

// The transpose in blocks of kBlock rows: element (row, i) goes to block row / kBlock, [i][row].
// Rows beyond the last are zeros.
template <class T>
FF_INLINE void pack_transposed(const T* from, std::int64_t stride, std::int64_t rows,
                               std::int64_t dim, float* to) {
  for (std::int64_t first = 0; first < rows; first += kLanes) {
    float* columns = to + first / kBlock * dim * kBlock + first % kBlock;
    const std::int64_t n = std::min<std::int64_t>(kLanes, rows - first);
    for_lanes(dim, [&](std::int64_t i, auto count) {
      F square[kLanes];
      for (std::int64_t row = 0; row < kLanes; ++row) {
        square[row] = row < n ? load(from + (first + row) * stride + i, count) : F{};
      }
      transpose(square);
      const std::int64_t columns_here = std::min<std::int64_t>(kLanes, dim - i);
      for (std::int64_t c = 0; c < columns_here; ++c) {
        store(columns + (i + c) * kBlock, square[c], All{});
      }
    });
  }
}

// scores = q·kᵀ: only what rows see, in whole vectors; then what they don't see is masked.
FF_INLINE void scores_of(const Block& block, const float* q, std::int64_t width,
                         const float* k_transposed, std::int64_t dim, float* scores) {
  multiply(BlockA{q, width, 1}, k_transposed, kBlock, scores, kBlock, block.rows, false,
           [&](std::int64_t row, std::int64_t rows) {
             return TileNeeds{0, dim, padded(block.seen(row + rows - 1)) / kLanes};
           });
}

// Running softmax of one block of queries.
struct Softmax {
  float max[kBlock], sum[kBlock];
};

// One block of queries of one head; `out` is a padded block of zeros that becomes the output.
template <class T>
FF_INLINE void forward_queries(const HeadTask<T>& task, std::int64_t head, std::int64_t query,
                               std::int64_t rows, const float* q, const float* k_transposed,
                               const float* v, float* scores, float* out, Softmax& softmax) {
  const std::int64_t width = padded(task.head_dim), past = task.keys - task.queries;
  const bool drops = task.dropout.p > 0;
  const Masking masking = drops ? masking_of(task) : Masking{};
  std::fill(softmax.max, softmax.max + kBlock, kMasked);
  std::fill(softmax.sum, softmax.sum + kBlock, 0.0f);
  std::fill(out, out + kBlock * width, 0.0f);
  for (std::int64_t key = 0; key < past + query + rows; key += kBlock) {
    const Block block{query, rows, key, std::min(kBlock, task.keys - key), past};
    scores_of(block, q, width, k_transposed + key * task.head_dim, task.head_dim, scores);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t seen = block.seen(row), vectors = padded(seen) / kLanes;
      float* p = scores + row * kBlock;
      softmax_row(p, seen, vectors, softmax.max[row], softmax.sum[row], out + row * width, width);
      if (drops) {
        drop_row(task, masking, task.head + head, past + query + row, key, vectors, p);
      }
      // The rows of a tile share their sums' length.
      std::fill(p + vectors * kLanes, p + kBlock, 0.0f);
    }
    multiply(BlockA{scores, kBlock, 1}, v + key * width, width, out, width, rows, true,
             [&](std::int64_t row, std::int64_t tile) {
               return TileNeeds{0, block.seen(row + tile - 1), width / kLanes};
             });
  }
}

template <class T>
std::int64_t forward_scratch(const HeadTask<T>& task) {
  const std::int64_t width = padded(task.head_dim);
  return blocks_of(task.keys) * kBlock * (task.head_dim + width) + kBlock * (2 * width + kBlock);
}

template <class T>
void forward(const HeadTask<T>& task, T* out, std::int64_t out_stride, float* scratch) {
  const std::int64_t dim = task.head_dim, width = padded(dim);
  Arena arena(scratch);
  float* k_transposed = arena.take(blocks_of(task.keys) * kBlock * dim);
  float* v = arena.take(blocks_of(task.keys) * kBlock * width);
  float* q = arena.take(kBlock * width);
  float* sums = arena.take(kBlock * width);
  float* scores = arena.take(kBlock * kBlock);
  pack_transposed(task.k, task.k_stride, task.keys, dim, k_transposed);
  pack_rows(task.v, task.v_stride, task.keys, dim, 1.0f, v);
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  Softmax softmax;
  for (std::int64_t head = 0; head < task.group; ++head) {
    const T* head_q = task.q + head * task.q_head_stride;
    T* head_out = out + head * task.out_head_stride;
    for (std::int64_t query = 0; query < task.queries; query += kBlock) {
      const std::int64_t rows = std::min(kBlock, task.queries - query);
      pack_rows(head_q + query * task.q_stride, task.q_stride, rows, dim, scale, q);
      forward_queries(task, head, query, rows, q, k_transposed, v, scores, sums, softmax);
      for (std::int64_t row = 0; row < rows; ++row) {
        unpack_rows(sums + row * width, 1, dim, 1.0f / softmax.sum[row],
                    head_out + (query + row) * out_stride, 0);
        if (task.lse != nullptr) {
          task.lse[head * task.queries + query + row] =
              softmax.max[row] + std::log(softmax.sum[row]);
        }
      }
    }
  }
}

// One query of one head, straight from the strided keys and values: for a few queries over a long
// cache, packing would cost more than the products. `out` holds padded sums.
template <class T>
FF_INLINE void forward_query(const HeadTask<T>& task, std::int64_t head, std::int64_t query,
                             const float* q, const Masking& masking, float* out, float& max,
                             float& sum_of_exps) {
  const std::int64_t dim = task.head_dim, width = padded(dim);
  const std::int64_t position = task.keys - task.queries + query;
  alignas(64) float scores[kBlock];
  for (std::int64_t key = 0; key <= position; key += kBlock) {
    const std::int64_t seen = std::min(kBlock, position + 1 - key);
    for (std::int64_t j = 0; j < seen; ++j) {
      const T* k = task.k + (key + j) * task.k_stride;
      F dot{};
      for_lanes(dim, [&](std::int64_t i, auto count) {
        dot = fma(load(q + i, All{}), load(k + i, count), dot);  // Padded with zeros.
      });
      scores[j] = sum(dot);
    }
    const std::int64_t vectors = padded(seen) / kLanes;
    softmax_row(scores, seen, vectors, max, sum_of_exps, out, width);
    if (task.dropout.p > 0) {
      drop_row(task, masking, task.head + head, position, key, vectors, scores);
    }
    for (std::int64_t j = 0; j < seen; ++j) {
      const T* v = task.v + (key + j) * task.v_stride;
      for_lanes(dim, [&](std::int64_t i, auto count) {
        store(out + i, fma(splat(scores[j]), load(v + i, count), load(out + i, All{})), All{});
      });
    }
  }
}

template <class T>
void forward_few(const HeadTask<T>& task, T* out, std::int64_t out_stride, float* scratch) {
  const std::int64_t dim = task.head_dim, width = padded(dim);
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const Masking masking = task.dropout.p > 0 ? masking_of(task) : Masking{};
  float *q = scratch, *sums = scratch + width;
  for (std::int64_t head = 0; head < task.group; ++head) {
    for (std::int64_t query = 0; query < task.queries; ++query) {
      float max = kMasked, sum_of_exps = 0;
      pack_rows(task.q + head * task.q_head_stride + query * task.q_stride, 0, 1, dim, scale, q);
      std::fill(sums, sums + width, 0.0f);
      forward_query(task, head, query, q, masking, sums, max, sum_of_exps);
      T* to = out + head * task.out_head_stride + query * out_stride;
      unpack_rows(sums, 1, dim, 1.0f / sum_of_exps, to, 0);
      if (task.lse != nullptr) {
        task.lse[head * task.queries + query] = max + std::log(sum_of_exps);
      }
    }
  }
}

// What backward of one block of queries works with, all packed.
struct BackwardBuffers {
  float *k, *k_transposed, *v_transposed, *dk, *dv;  // Of all keys.
  float *q, *dout, *dq;                              // Of a block of queries.
  float *p, *dp;                                     // Of a block of scores.
  float delta[kBlock];                               // Σ dout·out per query.
};

// p := probabilities with dropout's mask and scale, dp := gradient of the scores.
template <class T>
FF_INLINE void backward_row(const HeadTask<T>& task, const Masking& masking, std::int64_t head,
                            const Block& block, std::int64_t row, float lse, float delta, float* p,
                            float* dp) {
  const std::int64_t seen = block.seen(row), vectors = padded(seen) / kLanes;
  alignas(64) std::uint32_t words[kBlock + 2 * kLanes];
  const bool drops = task.dropout.p > 0;
  if (drops) {
    dropout_words(task, masking.key, task.head + head, block.past + block.query + row, block.key,
                  words);
  }
  for (std::int64_t i = seen; i < vectors * kLanes; ++i) p[i] = kMasked;
  for (std::int64_t i = 0; i < vectors; ++i) {
    F probability = exp(load(p + i * kLanes, All{}) - splat(lse));
    F slope = load(dp + i * kLanes, All{});
    F kept = probability;
    if (drops) {
      kept = keep(probability, words + i * kLanes, masking.threshold, masking.scale);
      slope = keep(slope, words + i * kLanes, masking.threshold, masking.scale);
    }
    store(p + i * kLanes, kept, All{});
    store(dp + i * kLanes, probability * (slope - splat(delta)), All{});
  }
  std::fill(p + vectors * kLanes, p + kBlock, 0.0f);
  std::fill(dp + vectors * kLanes, dp + kBlock, 0.0f);
}

// Training only: as many queries as keys.
template <class T>
FF_INLINE void backward_queries(const HeadTask<T>& task, std::int64_t head, std::int64_t query,
                                std::int64_t rows, const Masking& masking, BackwardBuffers& b) {
  const std::int64_t dim = task.head_dim, width = padded(dim);
  const float* lse = task.lse + head * task.queries + query;
  for (std::int64_t key = 0; key < query + rows; key += kBlock) {
    const Block block{query, rows, key, std::min(kBlock, task.keys - key), 0};
    scores_of(block, b.q, width, b.k_transposed + key * dim, dim, b.p);
    scores_of(block, b.dout, width, b.v_transposed + key * dim, dim, b.dp);
    for (std::int64_t row = 0; row < rows; ++row) {
      backward_row(task, masking, head, block, row, lse[row], b.delta[row], b.p + row * kBlock,
                   b.dp + row * kBlock);
    }
    // Keys of a tile are seen from the query of the first of them on.
    auto by_key = [&](std::int64_t tile, std::int64_t) {
      const std::int64_t begin = std::clamp<std::int64_t>(key + tile - query, 0, rows);
      return TileNeeds{begin, rows, width / kLanes};
    };
    const bool first = head == 0 && query == key;  // Nobody has written the sums of these keys.
    multiply(BlockA{b.p, 1, kBlock}, b.dout, width, b.dv + key * width, width, block.cols, !first,
             by_key);
    multiply(BlockA{b.dp, 1, kBlock}, b.q, width, b.dk + key * width, width, block.cols, !first,
             by_key);
    multiply(BlockA{b.dp, kBlock, 1}, b.k + key * width, width, b.dq, width, rows, key > 0,
             [&](std::int64_t row, std::int64_t tile) {
               return TileNeeds{0, block.seen(row + tile - 1), width / kLanes};
             });
  }
}

template <class T>
std::int64_t backward_scratch(const HeadTask<T>& task) {
  const std::int64_t dim = task.head_dim, width = padded(dim);
  return blocks_of(task.keys) * kBlock * (2 * dim + 3 * width) + kBlock * (3 * width + 2 * kBlock);
}

template <class T>
FF_INLINE BackwardBuffers buffers_of(const HeadTask<T>& task, float* scratch) {
  const std::int64_t dim = task.head_dim, width = padded(dim);
  const std::int64_t keys = blocks_of(task.keys) * kBlock;
  Arena arena(scratch);
  BackwardBuffers b;
  b.k = arena.take(keys * width);
  b.k_transposed = arena.take(keys * dim);
  b.v_transposed = arena.take(keys * dim);
  b.dk = arena.take(keys * width);
  b.dv = arena.take(keys * width);
  b.q = arena.take(kBlock * width);
  b.dout = arena.take(kBlock * width);
  b.dq = arena.take(kBlock * width);
  b.p = arena.take(kBlock * kBlock);
  b.dp = arena.take(kBlock * kBlock);
  pack_rows(task.k, task.k_stride, task.keys, dim, 1.0f, b.k);
  pack_transposed(task.k, task.k_stride, task.keys, dim, b.k_transposed);
  pack_transposed(task.v, task.v_stride, task.keys, dim, b.v_transposed);
  return b;
}

template <class T>
void backward(const HeadTask<T>& task, const T* out, const T* dout, std::int64_t out_stride, T* dq,
              T* dk, T* dv, std::int64_t dq_stride, std::int64_t dk_stride, std::int64_t dv_stride,
              float* scratch) {
  const std::int64_t dim = task.head_dim, width = padded(dim);
  BackwardBuffers b = buffers_of(task, scratch);
  const Masking masking = task.dropout.p > 0 ? masking_of(task) : Masking{};
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  for (std::int64_t head = 0; head < task.group; ++head) {
    const T* head_q = task.q + head * task.q_head_stride;
    for (std::int64_t query = 0; query < task.queries; query += kBlock) {
      const std::int64_t rows = std::min(kBlock, task.queries - query);
      const std::int64_t at = head * task.out_head_stride + query * out_stride;
      pack_rows(head_q + query * task.q_stride, task.q_stride, rows, dim, scale, b.q);
      pack_rows(dout + at, out_stride, rows, dim, 1.0f, b.dout);
      for (std::int64_t row = 0; row < rows; ++row) {
        F total{};
        for_lanes(dim, [&](std::int64_t i, auto count) {
          total = fma(load(b.dout + row * width + i, count),
                      load(out + at + row * out_stride + i, count), total);
        });
        b.delta[row] = sum(total);
      }
      backward_queries(task, head, query, rows, masking, b);
      unpack_rows(b.dq, rows, dim, scale, dq + head * task.q_head_stride + query * dq_stride,
                  dq_stride);
    }
  }
  unpack_rows(b.dk, task.keys, dim, 1.0f, dk, dk_stride);
  unpack_rows(b.dv, task.keys, dim, 1.0f, dv, dv_stride);
}

template <class T>
AttentionTable<T> table() {
  return {forward_scratch<T>, backward_scratch<T>, forward<T>, forward_few<T>, backward<T>};
}

}  // namespace

void fill(ForBoth<AttentionTable>& tables) { tables = {table<float>(), table<BFloat16>()}; }

}  // namespace fourfold::kernels::CPU_CAPABILITY
