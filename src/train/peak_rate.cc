#include "train/peak_rate.h"

#include <algorithm>

#include "base/clock.h"
#include "device/tensors.h"
#include "parallel/products.h"

namespace fourfold {
namespace {

constexpr std::int64_t kSide = 1024;
constexpr int kRepeats = 5;

}  // namespace

double measure_peak_flops(DType compute, Communicator& world) {
  const at::Tensor a = empty_tensor({kSide, kSide}, compute).fill_(0.5);
  const at::Tensor b = empty_tensor({kSide, kSide}, compute).fill_(0.25);
  const SteadyClock clock;
  double best = 0;
  world.barrier().wait_host();
  for (int i = 0; i < kRepeats; ++i) {
    const double begin = clock.seconds();
    const at::Tensor c = product_forward(a, b);
    const double rate = 2.0 * kSide * kSide * kSide / (clock.seconds() - begin);
    best = std::max(best, rate);
  }
  world.all_reduce({&best, 1, DType::kF64}, ReduceOp::kSum).wait_host();
  return best;
}

}  // namespace fourfold
