#pragma once

#include <ATen/core/TensorBody.h>

#include "base/async.h"
#include "layout/region.h"
#include "parallel/context.h"

namespace fourfold {

/// How the rows of the residual stream lie on x: repeated on each rank, or cut over them in
/// contiguous parts, the first (rows mod Gx) of which are a row longer. Cut is sequence parallelism
/// (Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv
/// 2205.05198, section 4.2.2): the all-reduces over x become a reduce-scatter and an all-gather of
/// the same traffic, and what lies between works on 1/Gx of the rows.
class StreamRows {
 public:
  StreamRows(const ParallelContext& context, bool cut)
      : context_(context), cut_(cut && context.size(Axis::kX) > 1) {}

  bool cut() const { return cut_; }
  /// Of `rows`, those on this rank.
  Range own(std::int64_t rows) const;

  /// A collective over x in flight. `part` has this rank's rows, `whole` all.
  struct Moving {
    at::Tensor part, whole;
    Work work;
  };
  Moving start_gather(const at::Tensor& part, std::int64_t rows, Lane lane) const;
  /// `whole` is a partial sum on each x.
  Moving start_sum(const at::Tensor& whole, Lane lane) const;

  /// [rows of this rank, columns] → [rows, columns]: all-gather over x. What is whole already is
  /// returned as it is.
  Async<at::Tensor> gather(at::Tensor part, std::int64_t rows) const;
  /// [rows, columns], a partial sum on each x → the sums of the stream's rows on this rank:
  /// reduce-scatter over x, or all-reduce in place where they are repeated.
  Async<at::Tensor> sum(at::Tensor whole) const;
  /// This rank's rows of what is the same on all x, as a view.
  at::Tensor own_of(const at::Tensor& whole) const;

 private:
  Communicator& x() const { return context_.grid.group({Axis::kX}); }

  const ParallelContext& context_;
  bool cut_;
};

}  // namespace fourfold
