#pragma once

#include <optional>
#include <vector>

#include "kernels/attention.h"
#include "model/kv_cache.h"
#include "model/micro_batch.h"
#include "parallel/linear.h"
#include "parallel/qk_norm.h"
#include "policy/model_layers.h"

namespace fourfold {

/// Causal self-attention with grouped queries: heads over x, sequences over z and data, repeated on
/// y. QKV is a normal linear, the output projection a transposed one. Where key/value heads are
/// fewer than x ranks, neighbours share one and their gradients are summed over them
/// (gradient_sync.h).
class Attention {
 public:
  Attention(const ParallelContext& context, const ModelSpec& spec, const BlockLayers& layers,
            int block);

  /// What backward needs besides the input.
  struct Saved {
    at::Tensor qkv;  ///< [rows, (heads + 2·kv_heads)·head_dim] of this rank, normed and turned.
    QkNorm4D::Saved qk_norm;
    at::Tensor output;       ///< [rows, heads·head_dim], before the projection.
    at::Tensor log_sum_exp;  ///< f32 [sequences, heads, seq].
  };

  /// x [rows, hidden of this rank] → the same shape, without the projection's bias, which the
  /// residual's kernel adds.
  Async<at::Tensor> forward(const at::Tensor& x, const MicroBatch& batch, Saved& saved) const;
  /// Whether restore() needs x.
  static bool needs_input(const Saved& saved) { return !saved.qkv.defined(); }
  /// Computes again what `saved` lacks.
  Async<void> restore(const at::Tensor& x, const MicroBatch& batch, Saved& saved) const;
  /// The last part of forward.
  Async<at::Tensor> project(const Saved& saved) const { return projection_.forward(saved.output); }
  Async<at::Tensor> backward(const at::Tensor& x, const at::Tensor& d_output,
                             const MicroBatch& batch, const Saved& saved);
  /// forward of the batch's positions after those in the cache, which it extends.
  Async<at::Tensor> decode(const at::Tensor& x, const MicroBatch& batch, KvCache& cache) const;
  KvCache make_cache(std::int64_t sequences, std::int64_t capacity) const;

  Linear4D& qkv() { return qkv_; }
  QkNorm4D* qk_norm() { return qk_norm_ ? &*qk_norm_ : nullptr; }
  Linear4D& projection() { return projection_; }
  const Linear4D& projection() const { return projection_; }

 private:
  Async<at::Tensor> project_qkv(const at::Tensor& x, std::int64_t seq, std::int64_t first_position,
                                QkNorm4D::Saved& saved) const;
  /// From the fused buffer to the output.
  void attend(const MicroBatch& batch, Saved& saved) const;
  /// Turns q and k of a fused buffer in place; the inverse for gradients.
  void turn(const at::Tensor& qkv, std::int64_t seq, std::int64_t first_position,
            bool inverse) const;
  kernels::AttentionShape shape(std::int64_t rows, std::int64_t seq) const;
  kernels::AttentionDropout dropout(const MicroBatch& batch) const;

  const ParallelContext& context_;
  int block_;
  std::int64_t heads_, kv_heads_, head_dim_;  ///< Of this rank.
  float dropout_;
  std::vector<float> rotary_table_;  ///< Empty with learned positions.
  Linear4D qkv_;
  std::optional<QkNorm4D> qk_norm_;
  Linear4D projection_;
};

}  // namespace fourfold
