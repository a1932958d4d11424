// 4D layers in a module of one's own: activations stay plain data-parallel tensors, LibTorch's
// autograd runs the backward, and the layers' weights are cut over the grid. Trains a small MLP on
// one rank and on four, with the same rows in all.
#include <fmt/core.h>
#include <torch/torch.h>

#include <cmath>

#include "comm/thread_world.h"
#include "device/intra_op_threads.h"
#include "parallel/autograd.h"
#include "parallel/gradient_sync.h"

namespace {

constexpr int kRows = 64, kIn = 10, kMiddle = 48, kSteps = 200;
constexpr double kRate = 0.02;

fourfold::LinearSpec linear(const char* name, std::int64_t in, std::int64_t out) {
  fourfold::LinearSpec spec;
  spec.members = {{.name = name, .out = out}};
  spec.in = in;
  spec.bias = true;
  spec.init_std = 0.3f;
  return spec;
}

/// An MLP as any other module: it does not know of the grid.
class Mlp {
 public:
  explicit Mlp(const fourfold::ParallelContext& context)
      : context_(context),
        up_(context, linear("up", kIn, kMiddle)),
        down_(context, linear("down", kMiddle, 1)) {
    for (fourfold::Linear4D* layer : {&up_, &down_}) unit_.add(*layer);
    unit_.refresh_vectors();
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = torch::tanh(fourfold::data_parallel_linear(context_, up_, x));
    return fourfold::data_parallel_linear(context_, down_, hidden);
  }

  /// Plain gradient descent with the gradients of all ranks.
  void step() {
    fourfold::OverlapScheduler plain({});
    fourfold::GradientSync sync(context_, plain);
    sync.passed(unit_);
    sync.finish();
    for (fourfold::Parameter* p : unit_.parameters()) p->weight.sub_(p->gradient, kRate);
    unit_.forget_gradients();
    unit_.refresh_vectors();
  }

 private:
  const fourfold::ParallelContext& context_;
  fourfold::Linear4D up_, down_;
  fourfold::ParameterUnit unit_;
};

/// The mean squared error over all rows after training.
double train(const fourfold::GridShape& shape) {
  double result = 0;
  fourfold::run_thread_ranks(shape.size(), {}, [&](fourfold::Communicator& world) {
    fourfold::set_intra_op_threads(1);
    fourfold::ProcessGrid grid(fourfold::Grid(shape), world);
    const fourfold::ParallelContext context{.grid = grid, .zero = false, .seed = 7};
    Mlp model(context);
    // Rank r has rows of its own; together they are the same for any number of ranks.
    const auto rows = fourfold::split_range(kRows, world.size(), world.rank());
    const at::Tensor all = torch::sin(torch::arange(kRows * kIn).view({kRows, kIn}).to(at::kFloat));
    const at::Tensor x = all.slice(0, rows.begin, rows.end);
    const at::Tensor target = x.sum(1, /*keepdim=*/true).sin();
    double loss = 0;
    for (int i = 0; i < kSteps; ++i) {
      const at::Tensor error = (model.forward(x) - target).pow(2).sum() / kRows;
      error.backward();
      model.step();
      loss = error.item<double>();
    }
    world.all_reduce({&loss, 1, fourfold::DType::kF64}, fourfold::ReduceOp::kSum).wait_host();
    if (world.rank() == 0) result = loss;
  });
  return result;
}

}  // namespace

int main() {
  const double one = train({1, 1, 1, 1});
  const double four = train({2, 1, 2, 1});
  fmt::print("error after {} steps, one rank: {:.6f}\n", kSteps, one);
  fmt::print("error after {} steps, four ranks: {:.6f}\n", kSteps, four);
  return one < 0.1 && std::abs(one - four) < 1e-3 * one ? 0 : 1;
}
