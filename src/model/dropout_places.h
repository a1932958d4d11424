#pragma once

#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "layout/region.h"
#include "model/micro_batch.h"
#include "parallel/stream_rows.h"

namespace fourfold {

/// Where hidden dropout stands; each place of each block has a number of its own.
inline std::uint32_t embedding_dropout_place() { return 0; }
inline std::uint32_t attention_dropout_place(int block) {
  return static_cast<std::uint32_t>(1 + 2 * block);
}
inline std::uint32_t mlp_dropout_place(int block) {
  return static_cast<std::uint32_t>(2 + 2 * block);
}

/// The mask of one place for this rank's rows of a micro-batch; `hidden` is global and split over
/// y.
inline kernels::DropoutSpec hidden_dropout(const ParallelContext& context, const StreamRows& rows,
                                           const MicroBatch& batch, float p, std::int64_t hidden,
                                           std::uint32_t place) {
  kernels::DropoutSpec spec;
  spec.p = batch.dropout ? p : 0;
  spec.key = philox_key(context.seed, RandomPurpose::kHiddenDropout);
  spec.step = static_cast<std::uint32_t>(batch.step);
  spec.layer = place;
  spec.samples = batch.samples.data();
  spec.seq = batch.seq;
  spec.row0 = rows.own(batch.rows()).begin;
  spec.col0 = split_range(hidden, context.size(Axis::kY), context.coords().y).begin;
  return spec;
}

}  // namespace fourfold
