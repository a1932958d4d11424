// The products of experts with few tokens each against one dense product of the same work, in turn,
// medians: what cutting the tokens into groups costs. Above 1: the grouped product is faster.
//
// usage: bench_grouped_product [threads [experts [tokens of each [bf16]]]]

#include <fmt/core.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <vector>

#include "device/caching_allocator.h"
#include "device/intra_op_threads.h"
#include "device/tensors.h"
#include "kernels/random.h"
#include "parallel/grouped_product.h"
#include "parallel/products.h"
#include "take_turns.h"

namespace fourfold {
namespace {

void compare(const char* name, double flops, const std::function<void()>& grouped,
             const std::function<void()>& dense) {
  constexpr double kMega = 1e6;  // FLOP per millisecond and GFLOP/s.
  const auto [ours, twin] = take_turns(grouped, dense);
  fmt::print("  {:<28} {:>8.2f} ms {:>6.1f} GFLOP/s {:>8.2f} ms {:>6.1f} GFLOP/s {:>6.2f}\n", name,
             ours, flops / ours / kMega, twin, flops / twin / kMega, twin / ours);
}

at::Tensor normal(std::int64_t rows, std::int64_t cols, DType dtype) {
  const at::Tensor x = empty_tensor({rows, cols}, DType::kF32);
  const kernels::BoxDim whole{0, x.numel(), x.numel()};
  kernels::fill_normal(elements<float>(x), {&whole, 1}, {7, 8}, 1, 1.0f);
  return as_type(x, dtype);
}

void bench(std::int64_t experts, std::int64_t tokens, std::int64_t k, std::int64_t n, DType dtype) {
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(experts), tokens);
  const std::int64_t all = experts * tokens;
  const at::Tensor x = normal(all, k, dtype), dy = normal(all, n, dtype);
  const at::Tensor w = normal(experts * n, k, dtype), w_dense = normal(n, k, dtype);
  const at::Tensor y = empty_tensor({all, n}, dtype), dx = empty_tensor({all, k}, dtype);
  const at::Tensor dw = zero_tensor({experts * n, k}, DType::kF32);
  const at::Tensor dw_dense = zero_tensor({n, k}, DType::kF32);
  const double flops = 2.0 * static_cast<double>(all * n * k);
  fmt::print("{} experts of {} tokens, {} -> {}\n", experts, tokens, k, n);
  compare(
      "forward", flops, [&] { grouped_product_forward(x, w, rows, y); },
      [&] { product_forward(x, w_dense); });
  compare(
      "input gradient", flops, [&] { grouped_product_input_gradient(dy, w, rows, dx); },
      [&] { product_input_gradient(dy, w_dense, dx); });
  for (bool accumulate : {false, true}) {
    compare(
        accumulate ? "weight gradient, accumulated" : "weight gradient", flops,
        [&] { grouped_product_weight_gradient(dy, x, rows, dw, accumulate); },
        [&] { product_weight_gradient(dy, x, dw_dense, accumulate); });
  }
}

}  // namespace
}  // namespace fourfold

int main(int argc, char** argv) {
  using fourfold::DType;
  fourfold::install_caching_allocator();
  fourfold::set_intra_op_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  const std::int64_t experts = argc > 2 ? std::atoi(argv[2]) : 16;
  const std::int64_t tokens = argc > 3 ? std::atoi(argv[3]) : 64;
  const DType dtype = argc > 4 ? DType::kBF16 : DType::kF32;
  fmt::print("{:<30} {:>30} {:>27} {:>8}\n", "", "grouped", "dense", "ratio");
  fourfold::bench(experts, tokens, 512, 2048, dtype);
  fourfold::bench(experts, tokens, 768, 3072, dtype);
}
