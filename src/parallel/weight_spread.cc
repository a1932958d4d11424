#include "parallel/weight_spread.h"

#include <utility>

#include "comm/tensor_buffer.h"
#include "device/tensors.h"

namespace fourfold {
namespace {

std::vector<Parameter*> small_ones(const ParallelContext& context, const ParameterUnit& unit) {
  std::vector<Parameter*> small;
  if (!context.zero || context.size(Axis::kData) == 1) return small;
  for (Parameter* p : unit.parameters()) {
    if (p->weight.numel() < Bucket::kSmall) small.push_back(p);
  }
  return small;
}

}  // namespace

WeightSpread::WeightSpread(const ParallelContext& context, const ParameterUnit& unit, Lane lane)
    : unit_(&unit), bucket_(context, small_ones(context, unit)) {
  if (!context.zero || context.size(Axis::kData) == 1) return;
  Communicator& data = context.grid.group({Axis::kData});
  std::vector<at::Tensor> tensors;
  std::vector<Work> works;
  for (Parameter* p : unit.parameters()) {
    if (p->weight.numel() < Bucket::kSmall) continue;
    works.push_back(data.all_gather(buffer_of(p->updated_weight()), buffer_of(p->weight),
                                    counts_over_data(context, *p), lane));
    tensors.push_back(p->weight);
  }
  if (!bucket_.empty()) {
    const at::Tensor mine = bucket_.pack_mine(&Parameter::weight);
    packed_ = bucket_.room(context.compute);
    tensors.insert(tensors.end(), {mine, packed_});
    works.push_back(data.all_gather(buffer_of(mine), buffer_of(packed_), bucket_.counts(), lane));
  }
  in_flight_ = InFlight(std::move(tensors), std::move(works));
}

void WeightSpread::finish() {
  in_flight_.wait();
  // This rank's own rows are not touched: they are what was sent, or newer.
  if (!bucket_.empty()) bucket_.unpack_others(packed_, &Parameter::weight);
  unit_->refresh_vectors();
}

}  // namespace fourfold
