#pragma once

#include <vector>

#include "layout/grid.h"
#include "spec/run_spec.h"

namespace fourfold {

/// What of a block's activations is kept from forward to backward; backward computes the rest
/// again. The block's input, the norms' statistics and the routers' choices always are.
struct KeptActivations {
  bool qkv = true;              ///< Queries, keys and values: the output of a collective over y.
  bool attention_input = true;  ///< Normed.
  bool attention = true;        ///< Its output and log-sum-exp.
  bool middle = true;           ///< The residual stream after attention: of a collective over x.
  bool up = true;               ///< The MLP before its activation: of a collective over y.
  bool mlp_input = true;        ///< Normed.
  bool mlp = true;              ///< The activation.
  /// The tokens that a rank's experts got from other ranks: of an all-to-all, gathered over x.
  bool exchange = true;
};

/// With overlap.keep_collectives what a collective over more than one rank gave is kept, so that no
/// activation is communicated again (CAC of Singh et al., "A Hybrid Tensor-Expert-Data Parallelism
/// Approach", arXiv 2303.06318, Section 5.2).
KeptActivations kept_activations(Recompute recompute, const OverlapSpec& overlap,
                                 const GridShape& shape, int expert_ranks = 1);

/// The same for each block of a run.
std::vector<KeptActivations> kept_by_block(const RunSpec& run);

}  // namespace fourfold
