#include <limits>

#include "kernels/attention.h"
#include "kernels/vector/amx.h"
#include "kernels/vector/attention_block.h"

// Attention of bf16 with AMX products: scores, probabilities and their gradients are float between
// the products and bf16 in them. Built only for AVX-512 with AMX.
namespace fourfold::kernels::CPU_CAPABILITY {
namespace {

using Task = HeadTask<BFloat16>;

// Widths of operands: head_dim padded to whole tiles of 32 bf16.
FF_INLINE std::int64_t wide(std::int64_t dim) { return (dim + 31) / 32 * 32; }

// Scratch in bf16 elements, counted in floats.
FF_INLINE std::uint16_t* take_bf16(Arena& arena, std::int64_t elements) {
  return reinterpret_cast<std::uint16_t*>(arena.take(elements / 2));
}

// A block of rows [rows, dim] as left operand [kBlock, width], padded with zeros.
FF_INLINE void pack_left(const BFloat16* from, std::int64_t stride, std::int64_t rows,
                         std::int64_t dim, std::uint16_t* to) {
  const std::int64_t width = wide(dim);
  for (std::int64_t row = 0; row < kBlock; ++row) {
    if (row + kRowsAhead < rows) prefetch_row(from + (row + kRowsAhead) * stride, dim);
    std::uint16_t* out = to + row * width;
    std::int64_t copied = 0;
    if (row < rows) {
      std::memcpy(out, from + row * stride, static_cast<std::size_t>(dim) * 2);
      copied = dim;
    }
    std::memset(out + copied, 0, static_cast<std::size_t>(width - copied) * 2);
  }
}

// Sixteen rows of sixteen words turned around.
FF_INLINE void transpose_words(const std::uint32_t* from, std::int64_t from_stride,
                               std::uint32_t* to, std::int64_t to_stride) {
  F square[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    square[i] = reinterpret_cast<F>(_mm512_loadu_si512(from + i * from_stride));
  }
  transpose(square);
  for (int i = 0; i < kLanes; ++i) {
    _mm512_storeu_si512(to + i * to_stride, reinterpret_cast<__m512i>(square[i]));
  }
}

// Words [rows, words] to [words, rows], both multiples of 16.
FF_INLINE void transpose_block(const std::uint32_t* from, std::int64_t rows, std::int64_t words,
                               std::uint32_t* to) {
  for (std::int64_t r = 0; r < rows; r += kLanes) {
    for (std::int64_t w = 0; w < words; w += kLanes) {
      transpose_words(from + r * words + w, words, to + w * rows + r, rows);
    }
  }
}

// A left operand [kBlock, width] as the right operand of a sum over its columns: pairs of columns
// side by side, [width / 2][kBlock][2].
FF_INLINE void right_over_columns(const std::uint16_t* left, std::int64_t width,
                                  std::uint16_t* to) {
  transpose_block(reinterpret_cast<const std::uint32_t*>(left), kBlock, width / 2,
                  reinterpret_cast<std::uint32_t*>(to));
}

// The same as the right operand of a sum over its rows: pairs of rows, [kBlock / 2][width][2].
FF_INLINE void right_over_rows(const std::uint16_t* left, std::int64_t width, std::uint16_t* to) {
  for (std::int64_t pair = 0; pair < kBlock / 2; ++pair) {
    const std::uint16_t* row = left + 2 * pair * width;
    for (std::int64_t i = 0; i < width; i += 16) {
      const __m512i low =
          _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + i)));
      const __m512i high = _mm512_cvtepu16_epi32(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + width + i)));
      _mm512_storeu_si512(to + 2 * (pair * width + i),
                          _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
  }
}

// Its transpose as a left operand [width, kBlock].
FF_INLINE void left_transposed(const std::uint16_t* left, std::int64_t width, std::uint16_t* pairs,
                               std::uint16_t* to) {
  right_over_rows(left, width, pairs);
  transpose_block(reinterpret_cast<const std::uint32_t*>(pairs), kBlock / 2, width,
                  reinterpret_cast<std::uint32_t*>(to));
}

struct ForwardBuffers {
  std::uint16_t *k_right, *v_right;  // Of all keys, a block of 64 after the other.
  std::uint16_t *q, *p, *rows;       // Of a block; rows for packing.
  float *scores, *out;
  float max[kBlock], sum[kBlock];
};

FF_INLINE void forward_queries(const Task& task, std::int64_t head, std::int64_t query,
                               std::int64_t rows, float scale, ForwardBuffers& b) {
  const std::int64_t width = wide(task.head_dim), past = task.keys - task.queries;
  const bool drops = task.dropout.p > 0;
  const Masking masking = drops ? masking_of(task) : Masking{};
  std::fill(b.max, b.max + kBlock, kMasked);
  std::fill(b.sum, b.sum + kBlock, 0.0f);
  std::fill(b.out, b.out + kBlock * width, 0.0f);
  for (std::int64_t key = 0; key < past + query + rows; key += kBlock) {
    const Block block{query, rows, key, std::min(kBlock, task.keys - key), past};
    multiply_amx(b.q, width, b.k_right + key * width, kBlock, b.scores, kBlock,
                 {kBlock, kBlock, width}, false);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t seen = block.seen(row), vectors = padded(seen) / kLanes;
      float* p = b.scores + row * kBlock;
      for (std::int64_t i = 0; i < vectors * kLanes; i += kLanes) {
        store(p + i, load(p + i, All{}) * splat(scale), All{});
      }
      softmax_row(p, seen, vectors, b.max[row], b.sum[row], b.out + row * width, width);
      if (drops) {
        drop_row(task, masking, task.head + head, past + query + row, key, vectors, p);
      }
      std::fill(p + vectors * kLanes, p + kBlock, 0.0f);
      for (std::int64_t i = 0; i < kBlock; i += kLanes) {
        store(reinterpret_cast<BFloat16*>(b.p + row * kBlock + i), load(p + i, All{}), All{});
      }
    }
    multiply_amx(b.p, kBlock, b.v_right + key * width, width, b.out, width, {kBlock, width, kBlock},
                 true);
  }
}

std::int64_t forward_scratch(const Task& task) {
  const std::int64_t width = wide(task.head_dim), keys = blocks_of(task.keys) * kBlock;
  return keys * width + kBlock * (2 * width + kBlock + kBlock / 2) + 64;
}

void forward(const Task& task, BFloat16* out, std::int64_t out_stride, float* scratch) {
  const std::int64_t dim = task.head_dim, width = wide(dim);
  const std::int64_t keys = blocks_of(task.keys) * kBlock;
  Arena arena(scratch);
  ForwardBuffers b;
  b.k_right = take_bf16(arena, keys * width);
  b.v_right = take_bf16(arena, keys * width);
  b.q = take_bf16(arena, kBlock * width);
  b.rows = take_bf16(arena, kBlock * width);
  b.p = take_bf16(arena, kBlock * kBlock);
  b.scores = arena.take(kBlock * kBlock);
  b.out = arena.take(kBlock * width);
  std::memset(b.p, 0, static_cast<std::size_t>(kBlock * kBlock) * 2);
  const TileUse tiles;
  for (std::int64_t key = 0; key < task.keys; key += kBlock) {
    const std::int64_t n = std::min(kBlock, task.keys - key);
    pack_left(task.k + key * task.k_stride, task.k_stride, n, dim, b.rows);
    right_over_columns(b.rows, width, b.k_right + key * width);
    pack_left(task.v + key * task.v_stride, task.v_stride, n, dim, b.rows);
    right_over_rows(b.rows, width, b.v_right + key * width);
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  for (std::int64_t head = 0; head < task.group; ++head) {
    for (std::int64_t query = 0; query < task.queries; query += kBlock) {
      const std::int64_t rows = std::min(kBlock, task.queries - query);
      pack_left(task.q + head * task.q_head_stride + query * task.q_stride, task.q_stride, rows,
                dim, b.q);
      forward_queries(task, head, query, rows, scale, b);
      for (std::int64_t row = 0; row < rows; ++row) {
        const F inverse = splat(1.0f / b.sum[row]);
        BFloat16* to = out + head * task.out_head_stride + (query + row) * out_stride;
        for_lanes(dim, [&](std::int64_t i, auto count) {
          store(to + i, load(b.out + row * width + i, count) * inverse, count);
        });
        if (task.lse != nullptr) {
          task.lse[head * task.queries + query + row] = b.max[row] + std::log(b.sum[row]);
        }
      }
    }
  }
}

struct BackwardBuffers {
  std::uint16_t *k_right, *v_right, *k_rows;  // Of all keys: for scores, dp and dq.
  float *dk, *dv;                             // Of all keys, transposed: [width, kBlock] a block.
  std::uint16_t *q, *dout, *q_turned, *dout_turned, *rows;  // Of a block of queries.
  std::uint16_t *p_right, *ds_right, *ds;                   // Of a block of scores.
  float *scores, *dp, *dq;
  float delta[kBlock];
};

// One row of a block: probabilities with dropout into p, gradients of the scores into dp.
FF_INLINE void backward_row(const Task& task, const Masking& masking, std::int64_t head,
                            const Block& block, std::int64_t row, float scale, float lse,
                            float delta, float* p, float* dp) {
  const std::int64_t seen = block.seen(row), vectors = padded(seen) / kLanes;
  alignas(64) std::uint32_t words[kBlock + 2 * kLanes];
  const bool drops = task.dropout.p > 0;
  if (drops) {
    dropout_words(task, masking.key, task.head + head, block.query + row, block.key, words);
  }
  for (std::int64_t i = seen; i < vectors * kLanes; ++i) p[i] = kMasked;
  for (std::int64_t i = 0; i < vectors * kLanes; i += kLanes) {
    const F probability = exp(fma(load(p + i, All{}), splat(scale), splat(-lse)));
    F slope = load(dp + i, All{});
    F kept = probability;
    if (drops) {
      kept = keep(probability, words + i, masking.threshold, masking.scale);
      slope = keep(slope, words + i, masking.threshold, masking.scale);
    }
    store(p + i, kept, All{});
    store(dp + i, probability * (slope - splat(delta)) * splat(scale), All{});
  }
  std::fill(p + vectors * kLanes, p + kBlock, 0.0f);
  std::fill(dp + vectors * kLanes, dp + kBlock, 0.0f);
}

// Rows 2·pair and 2·pair + 1 of floats to a right operand's pairs and, unless null, to rows of
// bf16.
FF_INLINE void narrow_pair(const float* rows, std::int64_t pair, std::uint16_t* right,
                           std::uint16_t* left) {
  const float* row = rows + 2 * pair * kBlock;
  for (std::int64_t i = 0; i < kBlock; i += kLanes) {
    const __m256i low = narrow(load(row + i, All{}));
    const __m256i high = narrow(load(row + kBlock + i, All{}));
    const __m512i pairs = _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                                          _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
    _mm512_storeu_si512(right + 2 * (pair * kBlock + i), pairs);
    if (left == nullptr) continue;
    std::uint16_t* to = left + 2 * pair * kBlock + i;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + kBlock), high);
  }
}

FF_INLINE void backward_queries(const Task& task, std::int64_t head, std::int64_t query,
                                std::int64_t rows, const Masking& masking, float scale,
                                BackwardBuffers& b) {
  const std::int64_t width = wide(task.head_dim);
  const float* lse = task.lse + head * task.queries + query;
  for (std::int64_t key = 0; key < query + rows; key += kBlock) {
    const Block block{query, rows, key, std::min(kBlock, task.keys - key), 0};
    multiply_amx(b.q, width, b.k_right + key * width, kBlock, b.scores, kBlock,
                 {kBlock, kBlock, width}, false);
    multiply_amx(b.dout, width, b.v_right + key * width, kBlock, b.dp, kBlock,
                 {kBlock, kBlock, width}, false);
    for (std::int64_t row = 0; row < kBlock; ++row) {
      float *p = b.scores + row * kBlock, *dp = b.dp + row * kBlock;
      if (row < rows) {
        backward_row(task, masking, head, block, row, scale, lse[row], b.delta[row], p, dp);
      } else {
        std::fill(p, p + kBlock, 0.0f);
        std::fill(dp, dp + kBlock, 0.0f);
      }
      if (row % 2 == 1) {
        narrow_pair(b.scores, row / 2, b.p_right, nullptr);
        narrow_pair(b.dp, row / 2, b.ds_right, b.ds);
      }
    }
    const bool later = head > 0 || query > key;  // Somebody has written the sums of these keys.
    multiply_amx(b.dout_turned, kBlock, b.p_right, kBlock, b.dv + key * width, kBlock,
                 {width, kBlock, kBlock}, later);
    multiply_amx(b.q_turned, kBlock, b.ds_right, kBlock, b.dk + key * width, kBlock,
                 {width, kBlock, kBlock}, later);
    multiply_amx(b.ds, kBlock, b.k_rows + key * width, width, b.dq, width, {kBlock, width, kBlock},
                 key > 0);
  }
}

std::int64_t backward_scratch(const Task& task) {
  const std::int64_t width = wide(task.head_dim), keys = blocks_of(task.keys) * kBlock;
  return keys * width * 7 / 2 + kBlock * (width * 7 / 2 + kBlock * 7 / 2) + 64;
}

FF_INLINE BackwardBuffers backward_buffers(const Task& task, float* scratch) {
  const std::int64_t width = wide(task.head_dim), keys = blocks_of(task.keys) * kBlock;
  Arena arena(scratch);
  BackwardBuffers b;
  b.k_right = take_bf16(arena, keys * width);
  b.v_right = take_bf16(arena, keys * width);
  b.k_rows = take_bf16(arena, keys * width);
  b.dk = arena.take(keys * width);
  b.dv = arena.take(keys * width);
  b.q = take_bf16(arena, kBlock * width);
  b.dout = take_bf16(arena, kBlock * width);
  b.q_turned = take_bf16(arena, kBlock * width);
  b.dout_turned = take_bf16(arena, kBlock * width);
  b.rows = take_bf16(arena, kBlock * width);
  b.p_right = take_bf16(arena, kBlock * kBlock);
  b.ds_right = take_bf16(arena, kBlock * kBlock);
  b.ds = take_bf16(arena, kBlock * kBlock);
  b.scores = arena.take(kBlock * kBlock);
  b.dp = arena.take(kBlock * kBlock);
  b.dq = arena.take(kBlock * width);
  for (std::int64_t key = 0; key < task.keys; key += kBlock) {
    const std::int64_t n = std::min(kBlock, task.keys - key);
    pack_left(task.k + key * task.k_stride, task.k_stride, n, task.head_dim, b.rows);
    right_over_columns(b.rows, width, b.k_right + key * width);
    right_over_rows(b.rows, width, b.k_rows + key * width);
    pack_left(task.v + key * task.v_stride, task.v_stride, n, task.head_dim, b.rows);
    right_over_columns(b.rows, width, b.v_right + key * width);
  }
  return b;
}

// Transposed sums of all keys to rows.
FF_INLINE void write_key_gradient(const float* sums, const Task& task, float* square, BFloat16* to,
                                  std::int64_t stride) {
  const std::int64_t width = wide(task.head_dim);
  for (std::int64_t key = 0; key < task.keys; key += kBlock) {
    transpose_block(reinterpret_cast<const std::uint32_t*>(sums + key * width), width, kBlock,
                    reinterpret_cast<std::uint32_t*>(square));
    for (std::int64_t row = 0; row < std::min(kBlock, task.keys - key); ++row) {
      for_lanes(task.head_dim, [&](std::int64_t i, auto count) {
        store(to + (key + row) * stride + i, load(square + row * width + i, count), count);
      });
    }
  }
}

void backward(const Task& task, const BFloat16* out, const BFloat16* dout, std::int64_t out_stride,
              BFloat16* dq, BFloat16* dk, BFloat16* dv, std::int64_t dq_stride,
              std::int64_t dk_stride, std::int64_t dv_stride, float* scratch) {
  const std::int64_t dim = task.head_dim, width = wide(dim);
  BackwardBuffers b = backward_buffers(task, scratch);
  const Masking masking = task.dropout.p > 0 ? masking_of(task) : Masking{};
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  const TileUse tiles;
  for (std::int64_t head = 0; head < task.group; ++head) {
    for (std::int64_t query = 0; query < task.queries; query += kBlock) {
      const std::int64_t rows = std::min(kBlock, task.queries - query);
      const std::int64_t at = head * task.out_head_stride + query * out_stride;
      pack_left(task.q + head * task.q_head_stride + query * task.q_stride, task.q_stride, rows,
                dim, b.q);
      pack_left(dout + at, out_stride, rows, dim, b.dout);
      left_transposed(b.q, width, b.rows, b.q_turned);
      left_transposed(b.dout, width, b.rows, b.dout_turned);
      for (std::int64_t row = 0; row < rows; ++row) {
        F total{};
        for_lanes(dim, [&](std::int64_t i, auto count) {
          total = fma(load(dout + at + row * out_stride + i, count),
                      load(out + at + row * out_stride + i, count), total);
        });
        b.delta[row] = sum(total);
      }
      backward_queries(task, head, query, rows, masking, scale, b);
      for (std::int64_t row = 0; row < rows; ++row) {
        BFloat16* to = dq + head * task.q_head_stride + (query + row) * dq_stride;
        for_lanes(dim, [&](std::int64_t i, auto count) {
          store(to + i, load(b.dq + row * width + i, count), count);
        });
      }
    }
  }
  write_key_gradient(b.dk, task, b.dq, dk, dk_stride);
  write_key_gradient(b.dv, task, b.dq, dv, dv_stride);
}

}  // namespace

void fill_amx(AttentionTable<BFloat16>& table) {
  // A few queries don't fill tiles: forward_few stays.
  table = {forward_scratch, backward_scratch, forward, table.forward_few, backward};
}

}  // namespace fourfold::kernels::CPU_CAPABILITY
