#pragma once

#include <ATen/core/TensorBody.h>

#include <vector>

#include "base/async.h"
#include "layout/exchange_plan.h"
#include "parallel/context.h"
#include "parallel/row_exchange.h"

namespace fourfold {

/// Moves rows of tokens to the ranks of their experts and back (the token exchange of TED, Singh et
/// al., arXiv 2303.06318, with duplicates dropped). The rows are the same on all x; what experts
/// make of them is a partial sum on each x, as in Linear4D.
///
///   to_experts    all-to-all over the expert ranks, all-gather over x, rows put by expert
///   from_experts  rows put by sender, reduce-scatter over x, all-to-all back, all-gather over x
///
/// Each is the other's dual: the gradient of what one moved is moved by the other. Without dropping
/// duplicates every x sends all rows, nothing is gathered, and the sum is an all-reduce: Gx times
/// the bytes of the all-to-all, the same bits. Where the tokens are cut over x (StreamRows) each x
/// sends the rows of its own and gets those back: there is nothing to drop, and no last all-gather.
class TokenExchange {
 public:
  /// `cut_top_k`: not 0 where the tokens are cut over x, each with so many experts.
  TokenExchange(const ParallelContext& context, const RowExchange& rows, bool drop_duplicates,
                int cut_top_k = 0)
      : context_(context), rows_(rows), drops_(drop_duplicates), cut_top_k_(cut_top_k) {}

  /// Tells the others the counts, hears theirs. Collective over the expert ranks, as are all here
  /// (and over x).
  Async<ExchangePlan> plan(const SendOrder& order, Lane lane) const;

  /// For each of `rows`, [chunk.sent rows, its columns], what arrived: [chunk's expert rows, its
  /// columns].
  Async<std::vector<at::Tensor>> to_experts(const ExchangeChunk& chunk,
                                            std::vector<at::Tensor> rows, Lane lane) const;
  /// Where experts put what they make of a chunk's rows, [chunk's expert rows, columns of
  /// `returned`]: `returned` itself where nothing travels.
  at::Tensor room_at_experts(const ExchangeChunk& chunk, const at::Tensor& returned) const;
  /// `partial`, which room_at_experts() gave, summed over x into `returned`, [chunk's returned
  /// rows, columns]: dense rows of a larger tensor or of its own.
  Async<void> from_experts(const ExchangeChunk& chunk, const at::Tensor& partial,
                           at::Tensor returned, Lane lane) const;

 private:
  bool is_cut() const { return cut_top_k_ > 0; }
  /// Where nothing travels: one rank has all experts, and each x all rows already.
  bool alone() const { return rows_.ranks() == 1 && !is_cut(); }
  Communicator& x() const { return context_.grid.group({Axis::kX}); }
  /// The x ranks that each send a part, and which of them this one is.
  ExchangeParts parts() const {
    if (!is_cut() && (!drops_ || alone())) return {};
    return {context_.size(Axis::kX), context_.coords().x, cut_top_k_};
  }

  const ParallelContext& context_;
  RowExchange rows_;
  bool drops_;
  int cut_top_k_;
};

}  // namespace fourfold
