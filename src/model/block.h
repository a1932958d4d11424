#pragma once

#include "model/attention.h"
#include "model/feed_forward.h"
#include "parallel/norm.h"
#include "parallel/parameter_unit.h"
#include "parallel/stream_rows.h"
#include "policy/recompute.h"

namespace fourfold {

/// A pre-norm transformer block on the residual stream [rows of this rank, hidden of this rank],
/// hidden over y, rows repeated on x or cut over it (StreamRows):
///   h = x + dropout(attention(norm(x)) + bias);  y = h + dropout(mlp(norm(h)) + bias).
class Block {
 public:
  Block(const ParallelContext& context, const ModelSpec& spec, const BlockLayers& layers, int index,
        const MoeOptions& moe, bool keeps_whole = false);

  /// What backward needs; with recompute some of it is undefined between the passes. Of a cut
  /// stream the normed rows are those of this rank, or whole (keeps_whole).
  struct Saved {
    at::Tensor input;
    at::Tensor attention_input;  ///< norm(x).
    at::Tensor middle;           ///< h.
    at::Tensor mlp_input;        ///< norm(h).
    Norm4D::Statistics attention_statistics, mlp_statistics;
    Attention::Saved attention;
    FeedForward::Saved mlp;

    /// Lets go of what is not kept.
    void keep(const KeptActivations& kept);
  };

  Async<at::Tensor> forward(const at::Tensor& x, const MicroBatch& batch, Saved& saved) const;
  /// Computes again what `saved` lacks, the same bits; before backward.
  Async<void> restore(const MicroBatch& batch, Saved& saved) const;
  Async<at::Tensor> backward(const at::Tensor& d_output, const MicroBatch& batch,
                             const Saved& saved);
  Async<at::Tensor> decode(const at::Tensor& x, const MicroBatch& batch, KvCache& cache) const;

  const Attention& attention() const { return attention_; }
  /// All parameters, in the order of the forward pass.
  ParameterUnit unit();

 private:
  /// Normed rows, of which `rows` has this rank's at least, as a product takes them.
  Async<at::Tensor> whole(at::Tensor& rows, const MicroBatch& batch) const;
  /// residual + dropout(in + bias).
  at::Tensor add_residual(const at::Tensor& in, const VectorBlock* bias, const at::Tensor& residual,
                          const MicroBatch& batch, std::uint32_t place) const;
  /// The gradient of `in` from that of the sum; adds the bias's gradient.
  at::Tensor residual_backward(const at::Tensor& d_output, VectorBlock* bias,
                               const MicroBatch& batch, std::uint32_t place) const;

  const ParallelContext& context_;
  int index_;
  std::int64_t hidden_;
  float dropout_;
  StreamRows stream_;
  bool keeps_whole_;  ///< From forward to backward: the gathered inputs of products.
  Norm4D attention_norm_;
  Attention attention_;
  Norm4D mlp_norm_;
  FeedForward mlp_;
};

}  // namespace fourfold
