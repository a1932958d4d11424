#pragma once

#include <ATen/core/TensorBody.h>

#include <vector>

#include "base/async.h"
#include "layout/exchange_plan.h"
#include "layout/expert_nodes.h"
#include "parallel/context.h"

namespace fourfold {

/// Moves rows between expert ranks: an all-to-all of each tensor, or one on the node and one
/// between nodes (ExpertNodes), which gives the same rows in the same order.
class RowExchange {
 public:
  /// With `node_first` in two stages, where `ranks_on_node` neighbouring ranks share a node and
  /// that makes two. Throws Error (kUsage) where nodes have different numbers of expert ranks.
  RowExchange(const ParallelContext& context, int expert_ranks, bool node_first, int ranks_on_node);

  int ranks() const { return ranks_; }
  Communicator& all() const { return context_.grid.experts(ranks_); }

  /// Tells the ranks of the own node what will pass through them, hears the same: completes the
  /// chunks. Collective over the expert ranks, as are all here.
  Async<void> plan(std::vector<ExchangeChunk>& chunks, Lane lane) const;
  /// Of each of `rows`, [chunk.send rows by expert rank, its columns], what the expert ranks sent
  /// here: [chunk.receive rows, its columns].
  Async<std::vector<at::Tensor>> there(const ExchangeChunk& chunk, std::vector<at::Tensor> rows,
                                       Lane lane) const;
  /// The way back, from [chunk.receive rows, columns] to `out` [chunk.send rows, columns].
  Async<void> back(const ExchangeChunk& chunk, const at::Tensor& rows, at::Tensor out,
                   Lane lane) const;

 private:
  Communicator& on_node() const;
  Communicator& between_nodes() const;

  const ParallelContext& context_;
  int ranks_;
  ExpertNodes nodes_;
};

}  // namespace fourfold
