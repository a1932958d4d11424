#include "parallel/vector_block.h"

#include "parallel/in_flight.h"

namespace fourfold {

VectorBlock::VectorBlock(const ParallelContext& context, std::vector<ParameterSpec> specs)
    : ParameterGroup(context, std::move(specs)),
      values_(empty_tensor({rows(), 1}, DType::kF32)),
      gradient_(context.trains ? zero_tensor({rows(), 1}, DType::kF32) : at::Tensor()) {}

void VectorBlock::refresh() {
  if (storers().size() == 1) {
    values_.copy_(weights());
    return;
  }
  const at::Tensor whole = empty_tensor({rows(), 1}, context().compute);
  InFlight({whole}, start_gather_of_shards(whole, Lane::kCaller)).wait();
  values_.copy_(whole);
}

void VectorBlock::finish_gradient() {
  if (storers().size() == 1) {
    gradients().add_(gradient_);
  } else {
    const at::Tensor part = empty_tensor(gradients().sizes(), DType::kF32);
    InFlight({part}, start_scatter_to_shards(gradient_, part, Lane::kCaller)).wait();
    gradients().add_(part);
  }
  gradient_.zero_();
}

}  // namespace fourfold
