#include "parallel/stream_rows.h"

#include <utility>

#include "comm/await_work.h"
#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "parallel/overlap_scheduler.h"

namespace fourfold {

Range StreamRows::own(std::int64_t rows) const {
  if (!cut_) return {0, rows};
  return split_range(rows, context_.size(Axis::kX), context_.coords().x);
}

at::Tensor StreamRows::own_of(const at::Tensor& whole) const {
  const Range rows = own(whole.size(0));
  return rows_of(whole, rows.begin, rows.end);
}

StreamRows::Moving StreamRows::start_gather(const at::Tensor& part, std::int64_t rows,
                                            Lane lane) const {
  const at::Tensor whole = empty_tensor({rows, part.size(1)}, tensor_dtype(part));
  return {part, whole,
          x().all_gather(buffer_of(part), buffer_of(whole),
                         split_counts(rows, x().size(), part.size(1)), lane)};
}

StreamRows::Moving StreamRows::start_sum(const at::Tensor& whole, Lane lane) const {
  if (!cut_) return {whole, whole, x().all_reduce(buffer_of(whole), ReduceOp::kSum, lane)};
  const std::int64_t rows = whole.size(0), cols = whole.size(1);
  const at::Tensor part = empty_tensor({own(rows).size(), cols}, tensor_dtype(whole));
  return {part, whole,
          x().reduce_scatter(buffer_of(whole), buffer_of(part),
                             split_counts(rows, x().size(), cols), ReduceOp::kSum, lane)};
}

Async<at::Tensor> StreamRows::gather(at::Tensor part, std::int64_t rows) const {
  if (part.size(0) == rows) co_return part;
  Moving moving = start_gather(part, rows, forward_lane(context_));
  co_await finished(std::move(moving.work));
  co_return moving.whole;
}

Async<at::Tensor> StreamRows::sum(at::Tensor whole) const {
  Moving moving = start_sum(whole, forward_lane(context_));
  co_await finished(std::move(moving.work));
  co_return moving.part;
}

}  // namespace fourfold
