#include "parallel/redistribute.h"

#include <numeric>

#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "layout/region.h"
#include "parallel/columns.h"

namespace fourfold {
namespace {

Communicator& sharers(const ParallelContext& context) {
  return context.grid.group({Axis::kX, Axis::kY});
}

std::int64_t sum(const std::vector<std::int64_t>& rows, int count) {
  return std::accumulate(rows.begin(), rows.begin() + count, std::int64_t{0});
}

}  // namespace

std::vector<std::int64_t> rows_of_ranks(const ParallelContext& context, std::int64_t mine) {
  Communicator& group = sharers(context);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(group.size()));
  const std::vector<std::int64_t> one(rows.size(), 1);
  group.all_gather({&mine, 1, DType::kI64}, {rows.data(), group.size(), DType::kI64}, one)
      .wait_host();
  return rows;
}

at::Tensor to_grid(const ParallelContext& context, const at::Tensor& mine,
                   const std::vector<std::int64_t>& rows, Axis features) {
  Communicator& group = sharers(context);
  const std::int64_t width = mine.size(1);
  const at::Tensor all = empty_tensor({sum(rows, group.size()), width}, tensor_dtype(mine));
  std::vector<std::int64_t> counts = rows;
  for (std::int64_t& count : counts) count *= width;
  group.all_gather(buffer_of(mine), buffer_of(all), counts).wait_stream();
  const Range part = split_range(width, context.size(features), context.coords()[features]);
  return all.narrow(1, part.begin, part.size()).contiguous();
}

at::Tensor from_grid(const ParallelContext& context, const at::Tensor& part,
                     const std::vector<std::int64_t>& rows, Axis features, std::int64_t width) {
  const int rank = sharers(context).rank();
  const std::int64_t first = sum(rows, rank), mine = rows[static_cast<std::size_t>(rank)];
  return rows_of(gather_columns(context, part, width, features), first, first + mine).contiguous();
}

}  // namespace fourfold
