#include "parallel/weight_spread.h"

#include <utility>

#include "comm/tensor_buffer.h"
#include "device/tensors.h"
#include "policy/overlap_plan.h"

namespace fourfold {

WeightSpread::WeightSpread(const ParallelContext& context, const ParameterUnit& unit, Lane lane)
    : unit_(&unit) {
  if (!context.zero) return;
  std::vector<at::Tensor> tensors;
  std::vector<Work> works;
  for (const Replicated& set : by_replicas(context, unit.parameters())) {
    Communicator& replicas = *set.replicas;
    if (replicas.size() == 1) continue;
    std::vector<Parameter*> small;
    for (Parameter* p : set.parameters) {
      if (p->weight.numel() < kPackedBelow) {
        small.push_back(p);
        continue;
      }
      works.push_back(replicas.all_gather(buffer_of(p->updated_weight()), buffer_of(p->weight),
                                          counts_of_replicas(replicas, *p), lane));
      tensors.push_back(p->weight);
    }
    Packed packed{Bucket(replicas, std::move(small)), {}};
    if (packed.bucket.empty()) continue;
    const at::Tensor mine = packed.bucket.pack_mine(&Parameter::weight);
    packed.tensor = packed.bucket.room(context.compute);
    tensors.insert(tensors.end(), {mine, packed.tensor});
    works.push_back(replicas.all_gather(buffer_of(mine), buffer_of(packed.tensor),
                                        packed.bucket.counts(), lane));
    packed_.push_back(std::move(packed));
  }
  in_flight_ = InFlight(std::move(tensors), std::move(works));
}

void WeightSpread::finish() {
  in_flight_.wait();
  // This rank's own rows are not touched: they are what was sent, or newer.
  for (const Packed& packed : packed_) {
    packed.bucket.unpack_others(packed.tensor, &Parameter::weight);
  }
  unit_->refresh_vectors();
}

}  // namespace fourfold
