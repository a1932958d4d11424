#include "parallel/columns.h"

#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "layout/region.h"

namespace fourfold {
namespace {

/// Columns [rows, width] from one dense block [rows, width of y] for each y, and back.
at::Tensor columns_of_blocks(const at::Tensor& blocks, std::int64_t rows, std::int64_t width,
                             int parts) {
  at::Tensor whole = empty_tensor({rows, width}, tensor_dtype(blocks));
  for (int y = 0; y < parts; ++y) {
    const Range columns = split_range(width, parts, y);
    whole.narrow(1, columns.begin, columns.size())
        .copy_(blocks.narrow(0, rows * columns.begin, rows * columns.size())
                   .view({rows, columns.size()}));
  }
  return whole;
}

at::Tensor blocks_of_columns(const at::Tensor& whole, int parts) {
  const std::int64_t rows = whole.size(0), width = whole.size(1);
  at::Tensor blocks = empty_tensor({rows * width}, tensor_dtype(whole));
  for (int y = 0; y < parts; ++y) {
    const Range columns = split_range(width, parts, y);
    blocks.narrow(0, rows * columns.begin, rows * columns.size())
        .view({rows, columns.size()})
        .copy_(whole.narrow(1, columns.begin, columns.size()));
  }
  return blocks;
}

}  // namespace

at::Tensor gather_columns(const ParallelContext& context, const at::Tensor& part,
                          std::int64_t width, Axis axis) {
  Communicator& group = context.grid.group({axis});
  const std::int64_t rows = part.size(0);
  const at::Tensor blocks = empty_tensor({rows * width}, tensor_dtype(part));
  group.all_gather(buffer_of(part), buffer_of(blocks), split_counts(width, group.size(), rows))
      .wait_stream();
  return columns_of_blocks(blocks, rows, width, group.size());
}

at::Tensor scatter_columns(const ParallelContext& context, const at::Tensor& whole) {
  Communicator& y = context.grid.group({Axis::kY});
  const std::int64_t rows = whole.size(0), width = whole.size(1);
  const at::Tensor blocks = blocks_of_columns(whole, y.size());
  const at::Tensor part =
      empty_tensor({rows, split_range(width, y.size(), y.rank()).size()}, tensor_dtype(whole));
  y.reduce_scatter(buffer_of(blocks), buffer_of(part), split_counts(width, y.size(), rows),
                   ReduceOp::kSum)
      .wait_stream();
  return part;
}

at::Tensor exchange_rows_for_columns(const ParallelContext& context, const at::Tensor& part,
                                     std::int64_t width) {
  Communicator& y = context.grid.group({Axis::kY});
  const std::int64_t rows = split_range(part.size(0), y.size(), y.rank()).size();
  const at::Tensor blocks = empty_tensor({rows * width}, tensor_dtype(part));
  y.all_to_all(buffer_of(part), split_counts(part.size(0), y.size(), part.size(1)),
               buffer_of(blocks), split_counts(width, y.size(), rows))
      .wait_stream();
  return columns_of_blocks(blocks, rows, width, y.size());
}

at::Tensor exchange_columns_for_rows(const ParallelContext& context, const at::Tensor& whole,
                                     std::int64_t rows) {
  Communicator& y = context.grid.group({Axis::kY});
  const std::int64_t width = whole.size(1);
  const at::Tensor blocks = blocks_of_columns(whole, y.size());
  const std::int64_t columns = split_range(width, y.size(), y.rank()).size();
  const at::Tensor part = empty_tensor({rows, columns}, tensor_dtype(whole));
  y.all_to_all(buffer_of(blocks), split_counts(width, y.size(), whole.size(0)), buffer_of(part),
               split_counts(rows, y.size(), columns))
      .wait_stream();
  return part;
}

}  // namespace fourfold
