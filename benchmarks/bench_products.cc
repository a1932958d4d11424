// The products of linear layers on AMX tiles against LibTorch's, in one run on the same memory.
// Prints GFLOP/s and the ratio (above 1: tiles are faster). Without AMX there is nothing to
// compare. Usage: bench_products [threads [rows]], the rows (tokens) of each layer, unless given
// 2048.

#include <ATen/core/TensorBody.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/normal_ops.h>
#include <fmt/core.h>

#include <cstdlib>
#include <functional>
#include <utility>

#include "device/caching_allocator.h"
#include "device/intra_op_threads.h"
#include "device/tensors.h"
#include "kernels/tile_product.h"
#include "take_turns.h"

namespace {

namespace kn = fourfold::kernels;
using fourfold::BFloat16;
using fourfold::elements;

void compare(const char* what, fourfold::ProductShape shape, const std::function<void()>& ours,
             const std::function<void()>& theirs) {
  const auto [mine, twin] = fourfold::take_turns(ours, theirs);
  const double flops = 2e-6 * static_cast<double>(shape.rows * shape.cols * shape.depth);
  fmt::print("  {:<22} {:>8.0f} {:>8.0f} {:>6.2f}\n", what, flops / mine, flops / twin,
             twin / mine);
}

at::Tensor matrix(std::int64_t rows, std::int64_t cols, fourfold::DType type) {
  at::Tensor t = fourfold::empty_tensor({rows, cols}, fourfold::DType::kF32);
  at::_ops::normal_::call(t, 0, 1, std::nullopt);
  return t.to(fourfold::scalar_type(type));
}

// m rows, k input and n output features.
template <class T>
void bench(std::int64_t m, std::int64_t k, std::int64_t n, fourfold::DType type) {
  const at::Tensor x = matrix(m, k, type), w = matrix(n, k, type), dy = matrix(m, n, type);
  at::Tensor y = matrix(m, n, type), dx = matrix(m, k, type), dw = matrix(n, k, type);
  const at::Tensor sum = matrix(n, k, fourfold::DType::kF32);
  const auto factor = [](const at::Tensor& t, bool transposed = false) {
    return kn::Factor<T>{elements<T>(t), t.size(1), transposed};
  };
  fmt::print("{} {} x {} -> {}\n", fourfold::dtype_name(type), m, k, n);
  compare(
      "forward", {m, n, k},
      [&] {
        kn::tile_product(factor(x), factor(w), {m, n, k}, kn::ProductTarget<T>{elements<T>(y), n});
      },
      [&] { at::_ops::mm_out::call(x, w.t(), y); });
  compare(
      "input gradient", {m, k, n},
      [&] {
        kn::tile_product(factor(dy), factor(w, true), {m, k, n},
                         kn::ProductTarget<T>{elements<T>(dx), k});
      },
      [&] { at::_ops::mm_out::call(dy, w, dx); });
  compare(
      "weight gradient", {n, k, m},
      [&] {
        kn::tile_product(factor(dy, true), factor(x, true), {n, k, m},
                         kn::ProductTarget<float>{elements<float>(sum), k});
      },
      [&] { at::_ops::mm_out::call(dy.t(), x, dw); });
}

}  // namespace

int main(int argc, char** argv) {
  fourfold::install_caching_allocator();
  fourfold::set_intra_op_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  const std::int64_t rows = argc > 2 ? std::atoi(argv[2]) : 2048;
  if (!kn::has_tile_product()) {
    fmt::print("this CPU has no AMX for bf16\n");
    return 0;
  }
  fmt::print("{:<24} {:>8} {:>8} {:>6}\n", "GFLOP/s", "tiles", "library", "ratio");
  for (const auto& [k, n] : {std::pair{512, 1536},
                             {512, 2048},
                             {2048, 512},
                             {512, 8192},
                             {768, 3072},
                             {1024, 1024},
                             {2048, 2048}}) {
    bench<BFloat16>(rows, k, n, fourfold::DType::kBF16);
    bench<float>(rows, k, n, fourfold::DType::kF32);
  }
}
