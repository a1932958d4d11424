#include "parallel/weight_block.h"

#include <utility>

#include "device/tensors.h"
#include "kernels/elementwise.h"
#include "parallel/overlap_scheduler.h"

namespace fourfold {

WeightBlock::WeightBlock(const ParallelContext& context, std::vector<ParameterSpec> specs,
                         std::string name)
    : ParameterGroup(context, std::move(specs), std::move(name)) {
  if (context.overlap) context.overlap->add(*this);
}

at::Tensor WeightBlock::gather() const {
  if (context().overlap) return context().overlap->gather(*this);
  return start_gather(Lane::kCaller).wait();
}

void WeightBlock::add_gradient(const GradientTarget& target) {
  if (context().overlap) return context().overlap->scatter(*this);
  start_scatter(target, Lane::kCaller).finish();
}

WeightBlock::Gather WeightBlock::start_gather(Lane lane) const {
  if (storers().size() == 1) return {weights(), {}};
  const at::Tensor whole = empty_tensor({rows(), cols()}, context().compute);
  return {whole, InFlight({whole}, start_gather_of_shards(whole, lane))};
}

WeightBlock::GradientTarget WeightBlock::gradient_target() {
  return context().overlap ? context().overlap->gradient_target(*this) : new_gradient_target();
}

WeightBlock::GradientTarget WeightBlock::new_gradient_target() {
  if (storers().size() == 1) return {gradients(), !std::exchange(forgotten_, false)};
  return {empty_tensor({rows(), cols()}, DType::kF32), false};
}

WeightBlock::Scatter WeightBlock::start_scatter(const GradientTarget& target, Lane lane) {
  if (storers().size() == 1) return {};
  const bool adds = !std::exchange(forgotten_, false);
  const DType type = context().gradients;
  const at::Tensor part = empty_tensor(gradients().sizes(), type);
  const at::Tensor whole = as_type(target.tensor, type);
  return {gradients(), part, adds,
          InFlight({whole, part}, start_scatter_to_shards(whole, part, lane))};
}

void WeightBlock::Scatter::finish() {
  in_flight_.wait();
  if (!part_.defined()) return;
  if (!adds_) {
    gradients_.copy_(part_);
    return;
  }
  with_type(tensor_dtype(part_), [&]<class T>(T) {
    kernels::accumulate(elements<float>(gradients_), elements<T>(part_), part_.numel());
  });
}

}  // namespace fourfold
