#pragma once

#include <algorithm>
#include <limits>

#include "kernels/vector/philox.h"
#include "kernels/vector/tables.h"

/// What the forms of attention (float products, AMX products) share: blocks of scores, causal
/// masking, the running softmax and dropout.
namespace fourfold::kernels::CPU_CAPABILITY {

inline constexpr std::int64_t kBlock = 64;  // Queries and keys of a block of scores.
inline constexpr float kMasked = -std::numeric_limits<float>::infinity();

FF_INLINE std::int64_t padded(std::int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }
FF_INLINE std::int64_t blocks_of(std::int64_t n) { return (n + kBlock - 1) / kBlock; }

// The part of scratch that a caller takes, from front to back.
class Arena {
 public:
  explicit Arena(float* memory) : next_(memory) {}
  float* take(std::int64_t floats) {
    float* taken = next_;
    next_ += floats;
    return taken;
  }

 private:
  float* next_;
};

// Asks for the row that is packed some rows later: rows of a fused buffer lie too far apart for the
// processor to guess.
template <class T>
FF_INLINE void prefetch_row(const T* row, std::int64_t dim) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < dim; i += kLine) __builtin_prefetch(row + i);
}
inline constexpr std::int64_t kRowsAhead = 8;

// A block of scores: queries [query, query + rows), keys [key, key + cols); query i sees keys up to
// past + i.
struct Block {
  std::int64_t query, rows, key, cols, past;
  // The number of this block's keys that local row `row` sees.
  std::int64_t seen(std::int64_t row) const {
    return std::clamp<std::int64_t>(past + query + row + 1 - key, 0, cols);
  }
};

FF_INLINE PhiloxKey dropout_key(const AttentionDropout& dropout) {
  const PhiloxCounter mixed = philox4x32({dropout.step, dropout.layer, 0, 0}, dropout.key);
  return {mixed[0], mixed[1]};
}

// Random words of (query, keys [key, key + kBlock)); key is a multiple of kBlock.
template <class T>
FF_INLINE void dropout_words(const HeadTask<T>& task, PhiloxKey key, std::int64_t head,
                             std::int64_t query, std::int64_t first_key, std::uint32_t* words) {
  const auto sample = static_cast<std::uint64_t>(task.sample);
  const UL c1 = splat_word(static_cast<std::uint32_t>(query));
  const UL c2 = splat_word(static_cast<std::uint32_t>(sample));
  const UL c3 =
      splat_word(static_cast<std::uint32_t>(head) | static_cast<std::uint32_t>(sample >> 32) << 16);
  const auto group = static_cast<std::uint64_t>(first_key / 4);
  philox_words(words, kBlock / 4, key,
               [&](UL index) { return Counters{{index + group, c1, c2, c3}}; });
}

struct Masking {
  PhiloxKey key;
  std::uint32_t threshold;
  float scale;
};

template <class T>
FF_INLINE Masking masking_of(const HeadTask<T>& task) {
  return {dropout_key(task.dropout), dropout_threshold(task.dropout.p),
          1.0f / (1.0f - task.dropout.p)};
}

// One row of scores becomes exp(score - max), the sums and the output so far are rescaled.
FF_INLINE void softmax_row(float* scores, std::int64_t seen, std::int64_t vectors, float& max,
                           float& sum_so_far, float* out, std::int64_t width) {
  for (std::int64_t i = seen; i < vectors * kLanes; ++i) scores[i] = kMasked;
  F best = splat(max);
  for (std::int64_t i = 0; i < vectors; ++i) {
    best = CPU_CAPABILITY::max(best, load(scores + i * kLanes, All{}));
  }
  const float new_max = maximum(best);
  F total{};
  for (std::int64_t i = 0; i < vectors; ++i) {
    const F p = exp(load(scores + i * kLanes, All{}) - splat(new_max));
    store(scores + i * kLanes, p, All{});
    total = total + p;
  }
  if (new_max > max) {
    float factor[kLanes];
    store(factor, exp(splat(max - new_max)), All{});
    sum_so_far *= factor[0];
    for (std::int64_t i = 0; i < width; i += kLanes) {
      store(out + i, load(out + i, All{}) * splat(factor[0]), All{});
    }
    max = new_max;
  }
  sum_so_far += sum(total);
}

template <class T>
FF_INLINE void drop_row(const HeadTask<T>& task, const Masking& masking, std::int64_t head,
                        std::int64_t query, std::int64_t key, std::int64_t vectors, float* p) {
  alignas(64) std::uint32_t words[kBlock + 2 * kLanes];
  dropout_words(task, masking.key, head, query, key, words);
  for (std::int64_t i = 0; i < vectors; ++i) {
    const F v = load(p + i * kLanes, All{});
    store(p + i * kLanes, keep(v, words + i * kLanes, masking.threshold, masking.scale), All{});
  }
}

}  // namespace fourfold::kernels::CPU_CAPABILITY
