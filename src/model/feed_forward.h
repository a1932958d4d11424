#pragma once

#include <memory>

#include "model/mlp.h"
#include "model/moe.h"

namespace fourfold {

/// The second half of a block: an MLP, or experts in its place.
class FeedForward {
 public:
  FeedForward(const ParallelContext& context, const ModelSpec& spec, const BlockLayers& layers,
              int block, const MoeOptions& options) {
    if (layers.moe) {
      moe_ = std::make_unique<Moe>(context, spec, layers, block, options);
    } else {
      mlp_ = std::make_unique<Mlp>(context, spec, layers);
    }
  }

  /// Of the one that there is.
  struct Saved {
    Mlp::Saved mlp;
    Moe::Saved moe;

    /// Lets go of what is not kept.
    void keep(const KeptActivations& kept) {
      if (!kept.up) mlp.up.reset();
      if (!kept.mlp) mlp.activated.reset();
      moe.keep(kept);
    }
  };

  /// Whether forward and restore() take all rows of a cut stream, or the rows on this rank alone.
  bool takes_whole() const { return mlp_ || moe_->takes_whole(); }
  /// x [rows, hidden of this rank] → the stream's rows on this rank, without bias().
  Async<at::Tensor> forward(const at::Tensor& x, const MicroBatch& batch, Saved& saved) const {
    return moe_ ? moe_->forward(x, batch, saved.moe) : mlp_->forward(x, saved.mlp);
  }
  /// Whether restore() needs x.
  bool needs_input(const Saved& saved) const {
    return moe_ ? moe_->needs_input(saved.moe) : Mlp::needs_input(saved.mlp);
  }
  /// Computes again what `saved` lacks.
  Async<void> restore(const at::Tensor& x, const MicroBatch& batch, Saved& saved) const {
    return moe_ ? moe_->restore(x, batch, saved.moe) : mlp_->restore(x, saved.mlp);
  }
  /// x as given to forward, or the stream's rows of it on this rank; those of the gradients.
  Async<at::Tensor> backward(const at::Tensor& x, const at::Tensor& d_output,
                             const MicroBatch& batch, const Saved& saved) {
    return moe_ ? moe_->backward(x, d_output, batch, saved.moe)
                : mlp_->backward(x, d_output, saved.mlp);
  }

  /// What the residual's kernel adds; null where there is none.
  VectorBlock* bias() { return mlp_ ? mlp_->down().bias() : nullptr; }
  const VectorBlock* bias() const { return mlp_ ? mlp_->down().bias() : nullptr; }
  /// Adds all parameters, in the order of the forward pass.
  void add_to(ParameterUnit& unit) {
    if (moe_) return moe_->add_to(unit);
    unit.add(mlp_->up());
    unit.add(mlp_->down());
  }

 private:
  std::unique_ptr<Mlp> mlp_;
  std::unique_ptr<Moe> moe_;
};

}  // namespace fourfold
