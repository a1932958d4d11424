// Linear4D in a module of one's own, against LibTorch's linear on one rank with the rows of all.
#include "parallel/autograd.h"

#include "parallel/redistribute.h"
#include "tests/threads/layer_oracle.h"

namespace fourfold::testing {
namespace {

constexpr std::int64_t kIn = 13, kMiddle = 22, kOut = 7;

/// Ranks have different numbers of rows, one of them none.
std::int64_t rows_of_rank(int rank) { return rank == 1 ? 0 : 3 + rank % 3; }

LinearSpec spec_of(const char* name, std::int64_t in, std::int64_t out, Orientation orientation) {
  return {{{name, out, 0}}, in, orientation, true};
}

class EasyMode : public ::testing::Test {
 protected:
  void run(const GridShape& shape, Orientation orientation) {
    SCOPED_TRACE("grid " + shape.name());
    torch::manual_seed(3);
    std::int64_t all = 0;
    for (int r = 0; r < shape.size(); ++r) all += rows_of_rank(r);
    Weights weights;
    const at::Tensor up = weights.add("up.weight", {kMiddle, kIn});
    const at::Tensor down = weights.add("down.weight", {kOut, kMiddle});
    const at::Tensor up_bias = weights.add("up.bias", {kMiddle});
    const at::Tensor down_bias = weights.add("down.bias", {kOut});
    const at::Tensor x = torch::randn({all, kIn}).requires_grad_();
    const at::Tensor y = torch::linear(torch::tanh(torch::linear(x, up, up_bias)), down, down_bias);
    const at::Tensor dy = torch::randn({all, kOut});
    y.backward(dy);
    Collected output({all, kOut}), d_input({all, kIn});
    on_ranks(shape, [&](const ParallelContext& context) {
      const c10::InferenceMode autograd(false);
      Linear4D first(context, spec_of("up", kIn, kMiddle, orientation));
      Linear4D second(context, spec_of("down", kMiddle, kOut, Orientation::kTransposed));
      for (Linear4D* layer : {&first, &second}) {
        weights.load(layer->weights());
        weights.load(*layer->bias());
        layer->bias()->refresh();
      }
      const int rank = context.grid.world().rank();
      std::int64_t begin = 0;
      for (int r = 0; r < rank; ++r) begin += rows_of_rank(r);
      const std::int64_t end = begin + rows_of_rank(rank);
      for (int i = 0; i < kBackwards; ++i) {
        const at::Tensor mine = x.detach().slice(0, begin, end).clone().requires_grad_();
        const at::Tensor out = data_parallel_linear(
            context, second, torch::tanh(data_parallel_linear(context, first, mine)));
        out.backward(dy.slice(0, begin, end).clone());
        if (i > 0) continue;
        output.add(Region{{{begin, end}, {0, kOut}}}, out.detach());
        d_input.add(Region{{{begin, end}, {0, kIn}}}, mine.grad());
      }
      for (Linear4D* layer : {&first, &second}) {
        weights.collect(context, layer->weights());
        layer->bias()->finish_gradient();
        weights.collect(context, *layer->bias());
      }
    });
    output.expect_near(y.detach(), "output");
    d_input.expect_near(x.grad(), "gradient of the input");
    weights.expect_gradients();
  }
};

TEST_F(EasyMode, IsALinearOfDataParallelRows) {
  for (const GridShape& shape : grids()) {
    run(shape, Orientation::kNormal);
    run(shape, Orientation::kTransposed);
  }
}

}  // namespace
}  // namespace fourfold::testing
