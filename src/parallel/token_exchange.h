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
/// the bytes of the all-to-all, the same bits.
class TokenExchange {
 public:
  TokenExchange(const ParallelContext& context, const RowExchange& rows, bool drop_duplicates)
      : context_(context), rows_(rows), drops_(drop_duplicates) {}

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
  bool alone() const { return rows_.ranks() == 1; }
  Communicator& x() const { return context_.grid.group({Axis::kX}); }
  /// The x ranks that each send a part, and which of them this one is. Where nothing travels each
  /// has all rows already.
  bool drops() const { return drops_ && !alone(); }
  int parts() const { return drops() ? context_.size(Axis::kX) : 1; }
  int part() const { return drops() ? context_.coords().x : 0; }

  const ParallelContext& context_;
  RowExchange rows_;
  bool drops_;
};

}  // namespace fourfold
