// A 4D linear layer on four ranks, threads of this process, against the same layer on one rank.
#include <fmt/core.h>

#include <cmath>
#include <cstdint>

#include "comm/tensor_buffer.h"
#include "comm/thread_world.h"
#include "device/intra_op_threads.h"
#include "parallel/linear.h"

namespace {

using fourfold::Axis;

constexpr std::int64_t kRows = 7, kIn = 10, kOut = 9;  // Nothing divides.

// The input's element at a global place: every grid sees the same matrix.
float input_value(std::int64_t row, std::int64_t col) {
  return std::sin(static_cast<float>(row * kIn + col));
}

// Sum of the squares of the layer's output, over all ranks.
float output_energy(const fourfold::GridShape& shape) {
  float energy = 0;
  fourfold::run_thread_ranks(shape.size(), {}, [&](fourfold::Communicator& world) {
    fourfold::set_intra_op_threads(1);
    fourfold::ProcessGrid grid(fourfold::Grid(shape), world);
    const fourfold::ParallelContext context{.grid = grid, .seed = 1234};
    fourfold::LinearSpec spec;
    spec.members = {{.name = "layer", .out = kOut}};
    spec.in = kIn;
    fourfold::Linear4D layer(context, spec);

    // Rows are cut over z, input features over y; x ranks hold the same input.
    const auto at = context.coords();
    const auto rows = fourfold::split_range(kRows, shape.z, at.z);
    const auto cols = fourfold::split_range(kIn, shape.y, at.y);
    const auto input = fourfold::empty_tensor({rows.size(), cols.size()}, fourfold::DType::kF32);
    float* place = fourfold::elements<float>(input);
    for (auto row = rows.begin; row < rows.end; ++row) {
      for (auto col = cols.begin; col < cols.end; ++col) *place++ = input_value(row, col);
    }

    // The output is cut over z (rows) and x (features), and the same on all y.
    const at::Tensor output = fourfold::run_to_end(layer.forward(input));
    const auto sum = fourfold::zero_tensor({1}, fourfold::DType::kF32);
    float& mine = *fourfold::elements<float>(sum);
    for (std::int64_t i = 0; i < output.numel(); ++i) {
      const float value = fourfold::elements<float>(output)[i];
      mine += value * value;
    }
    grid.group({Axis::kX, Axis::kZ})
        .all_reduce(fourfold::buffer_of(sum), fourfold::ReduceOp::kSum)
        .wait_host();
    if (world.rank() == 0) energy = mine;
  });
  return energy;
}

}  // namespace

int main() {
  const float one = output_energy({1, 1, 1, 1});
  const float four = output_energy({2, 1, 2, 1});
  fmt::print("one rank: {:.6f}\nfour ranks: {:.6f}\n", one, four);
  return std::abs(one - four) <= 1e-5f * one ? 0 : 1;
}
