#pragma once

#include <memory>

#include "base/async.h"
#include "layout/layer_specs.h"
#include "parallel/stream_rows.h"
#include "parallel/vector_block.h"
#include "parallel/weight_block.h"

namespace fourfold {

/// A linear layer as a 3D-parallel product (Agarwal's algorithm as AxoNN uses it; "A 4D Hybrid
/// Algorithm to Scale Parallel Training to Thousands of GPUs", arXiv 2305.13525, Algorithm 1).
///
/// With m rows in this (z, data) rank, k input and n output features, for the normal orientation
/// (transposed: exchange x and y):
///
///   forward   W  = all-gather over z of the stored rows       [n/Gx, k/Gy]
///             Y  = all-reduce over y of  I · Wᵀ               [m, k/Gy]·[k/Gy, n/Gx]
///   backward  W  = all-gather over z                          (dual of the reduce-scatter)
///             dI = all-reduce over x of  dY · W               [m, n/Gx]·[n/Gx, k/Gy]
///             dW = reduce-scatter over z of  dYᵀ · I          [n/Gx, m]·[m, k/Gy]
///
/// The forward's all-reduce over y sums partial products; its dual is the identity, since Y and dY
/// are the same on all y. I is the same on all x, so its gradient is the sum over x.
///
/// With a scheduler (OverlapOptions) the weights come ahead of time, the sum of dI runs behind the
/// product dW, that of dW behind what follows. Each pass stands still at its sum (and where it
/// gathers dY): another slice of the micro-batch computes meanwhile.
///
/// Where the residual stream is cut over x (LinearSpec::rows_over_x), what a transposed linear
/// gives and the gradient of a normal one's input are summed by a reduce-scatter over x, and what
/// comes from the stream is gathered: the normal one's input by the caller.
///
/// The bias is not added here: the kernel that follows takes it (VectorBlock::values) and returns
/// its gradient, the column sums of dY.
class Linear4D {
 public:
  Linear4D(const ParallelContext& context, const LinearSpec& spec);

  /// input [m, in of this rank] → [m, out of this rank] (members side by side), reduced, no bias;
  /// of a cut stream the rows on this rank.
  Async<at::Tensor> forward(const at::Tensor& input) const;
  /// Gradient of the input, reduced; adds the weights' gradients. `input` as given to forward, or
  /// the rows on this rank of a normal one's.
  Async<at::Tensor> backward(const at::Tensor& input, const at::Tensor& d_output);

  Orientation orientation() const { return orientation_; }
  WeightBlock& weights() { return weights_; }
  /// Null where the layer has none.
  VectorBlock* bias() { return bias_.get(); }
  const VectorBlock* bias() const { return bias_.get(); }

 private:
  /// Of what runs behind a product.
  Lane lane() const;
  /// Starts the sum of `partial` over the outputs' axis.
  StreamRows::Moving start_sum(const at::Tensor& partial) const;
  at::Tensor input_gradient(const at::Tensor& d_output, const at::Tensor& weight) const;
  void add_weight_gradient(const at::Tensor& input, const at::Tensor& d_output);
  const std::string& name() const { return weights_.name(); }

  const ParallelContext& context_;
  StreamRows stream_;
  Orientation orientation_;
  WeightBlock weights_;
  std::unique_ptr<VectorBlock> bias_;
};

}  // namespace fourfold
