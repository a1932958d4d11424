#include "parallel/gradient_sync.h"

#include "comm/tensor_buffer.h"
#include "device/tensors.h"

namespace fourfold {
namespace {

/// Elements of the stored rows that each data rank updates.
std::vector<std::int64_t> counts_over_data(const ParallelContext& context, const Parameter& p) {
  const std::int64_t cols = p.weight.size(1);
  return split_counts(p.stored.dims[0].size(), context.size(Axis::kData), cols);
}

}  // namespace

void sum_gradients(const ParallelContext& context, std::span<Parameter* const> parameters) {
  Communicator& data = context.grid.group({Axis::kData});
  for (Parameter* p : parameters) {
    const int parts = p->spec.layout.dims[0].parts;
    if (parts != 0) {
      context.grid.sharers_of_x(parts)
          .all_reduce(buffer_of(p->gradient), ReduceOp::kSum)
          .wait_stream();
    }
    if (context.zero) {
      data.reduce_scatter(buffer_of(p->gradient), buffer_of(p->updated_gradient()),
                          counts_over_data(context, *p), ReduceOp::kSum)
          .wait_stream();
    } else {
      data.all_reduce(buffer_of(p->gradient), ReduceOp::kSum).wait_stream();
    }
  }
}

void gather_updated_weights(const ParallelContext& context,
                            std::span<Parameter* const> parameters) {
  if (!context.zero) return;
  Communicator& data = context.grid.group({Axis::kData});
  for (Parameter* p : parameters) {
    data.all_gather(buffer_of(p->updated_weight()), buffer_of(p->weight),
                    counts_over_data(context, *p))
        .wait_stream();
  }
}

}  // namespace fourfold
