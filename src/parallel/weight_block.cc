#include "parallel/weight_block.h"

#include "device/tensors.h"

namespace fourfold {

at::Tensor WeightBlock::gather(Lane lane) const {
  if (context().size(Axis::kZ) == 1) return weights();
  const at::Tensor whole = empty_tensor({rows(), cols()}, context().compute);
  gather_over_z(whole, lane);
  return whole;
}

WeightBlock::GradientTarget WeightBlock::gradient_target() {
  if (context().size(Axis::kZ) == 1) return {gradients(), true};
  return {empty_tensor({rows(), cols()}, DType::kF32), false};
}

void WeightBlock::add_gradient(const GradientTarget& target, Lane lane) {
  if (context().size(Axis::kZ) > 1) scatter_over_z(target.tensor, lane);
}

}  // namespace fourfold
