#pragma once

#include "base/async.h"
#include "kernels/qk_norm.h"
#include "layout/layer_specs.h"
#include "parallel/vector_block.h"

namespace fourfold {

/// RMSNorm of the queries and keys in a fused q|k|v buffer whose heads are split over x and
/// repeated on y. Where each head is normed by itself, nothing is exchanged; where all heads of a
/// row are normed together, one all-reduce over x of two floats a row in each direction. Key heads
/// that neighbours share count once.
class QkNorm4D {
 public:
  /// `q_columns` and `k_columns` are those of this rank.
  QkNorm4D(const ParallelContext& context, const QkNormSpec& spec, std::int64_t q_columns,
           std::int64_t k_columns);

  /// What backward needs.
  struct Saved {
    at::Tensor input;  ///< [rows, q_columns + k_columns]: before the norm.
    at::Tensor rstd;   ///< f32, [rows, groups] of q, then of k.
  };

  /// Norms q and k of `qkv` in place. Where `saved` has rstd, from it: the same bits again.
  Async<void> forward(const at::Tensor& qkv, Saved& saved) const;
  /// Turns the gradients of q and k in `d_qkv` into those before the norm, in place; adds the
  /// gains' gradients.
  Async<void> backward(const at::Tensor& d_qkv, const Saved& saved);

  VectorBlock& gains() { return gains_; }

 private:
  /// The queries or the keys.
  struct Part {
    std::int64_t first_column = 0;
    std::int64_t groups = 0;        ///< Of adjacent columns, each with statistics of its own.
    std::int64_t width = 0;         ///< Of a group, on this rank.
    std::int64_t global_width = 0;  ///< On all ranks that share its statistics.
    std::int64_t first_gain = 0;
    std::int64_t statistics = 0;  ///< Groups of the parts before this one.
  };

  kernels::QkColumns columns(const Part& part, const at::Tensor& qkv) const;
  /// f32 [groups of q and k, rows], of one part after the other.
  at::Tensor empty_statistics(std::int64_t rows) const;
  static float* of(const Part& part, const at::Tensor& statistics) {
    return elements<float>(statistics) + part.statistics * statistics.size(1);
  }
  template <class T>
  static T* of(const Part& part, const at::Tensor& fused_or_input, T /*type*/) {
    return elements<T>(fused_or_input) + part.first_column;
  }
  /// Whether the columns of a group lie on several ranks.
  bool split() const { return spec_.whole && context_.size(Axis::kX) > 1; }
  Async<void> reduce_statistics(const at::Tensor& qkv, const Saved& saved) const;
  const float* gain(const Part& part) const { return gains_.values() + part.first_gain; }

  const ParallelContext& context_;
  QkNormSpec spec_;
  VectorBlock gains_;  ///< Of q, then of k.
  Part parts_[2];
};

}  // namespace fourfold
