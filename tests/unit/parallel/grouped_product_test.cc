#include "parallel/grouped_product.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "device/intra_op_threads.h"
#include "device/tensors.h"
#include "kernels/tile_product.h"

namespace fourfold {
namespace {

struct Sizes {
  std::vector<std::int64_t> rows_of_group;
  std::int64_t n, k;
};

// Groups without rows at the start, in the middle and at the end, sizes that no block divides, one
// group far larger than the others, groups of a row each.
std::vector<Sizes> awkward() {
  return {{{0, 5, 0, 0, 17, 1, 0}, 70, 33},
          {{64, 64, 64, 64}, 128, 64},
          {{3, 300, 2}, 130, 65},
          {std::vector<std::int64_t>(9, 1), 65, 7},
          {{0, 0}, 3, 5},
          {{1}, 1, 1},
          {{200, 40}, 1100, 130}};
}

struct Kind {
  at::ScalarType type;
  F32Products how;
  double slack;
};

class GroupedProduct : public ::testing::TestWithParam<std::tuple<Kind, int>> {
 protected:
  void SetUp() override {
    if (kind().how == F32Products::kThreeBf16 && !kernels::has_tile_product()) {
      GTEST_SKIP() << "needs a CPU with AMX for bf16";
    }
    set_intra_op_threads(std::get<1>(GetParam()));
  }
  void TearDown() override { set_intra_op_threads(threads_); }

  static const Kind& kind() { return std::get<0>(GetParam()); }
  static at::Tensor normal(std::int64_t rows, std::int64_t cols) {
    return at::randn({rows, cols}).to(kind().type);
  }
  // Within what the types' rounding and the order of sums allow; NaNs fail.
  static void expect_close(const at::Tensor& actual, const at::Tensor& expected, const char* what) {
    ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
    const double slack = kind().slack;
    const auto a = actual.to(at::kDouble), e = expected.to(at::kDouble);
    EXPECT_TRUE(at::allclose(a, e, slack, 10 * slack)) << what << "\n" << (a - e).abs().max();
  }

 private:
  const int threads_ = intra_op_threads();
};

// Calls f(group, its rows of x, of dy, its weights' rows) for all groups.
template <class F>
void for_groups(const Sizes& s, F f) {
  std::int64_t first = 0;
  for (std::size_t g = 0; g < s.rows_of_group.size(); ++g) {
    const auto at = static_cast<std::int64_t>(g);
    f(at::indexing::Slice(first, first + s.rows_of_group[g]),
      at::indexing::Slice(at * s.n, (at + 1) * s.n));
    first += s.rows_of_group[g];
  }
}

TEST_P(GroupedProduct, IsTheProductOfEveryGroup) {
  at::manual_seed(1);
  for (const Sizes& s : awkward()) {
    const auto rows =
        std::accumulate(s.rows_of_group.begin(), s.rows_of_group.end(), std::int64_t{0});
    const auto weight_rows = std::ssize(s.rows_of_group) * s.n;
    const at::Tensor x = normal(rows, s.k), dy = normal(rows, s.n), w = normal(weight_rows, s.k);
    const at::Tensor nan = at::full({weight_rows, s.k}, std::nan(""));
    const at::Tensor y = at::full_like(dy, std::nan("")), dx = at::full_like(x, std::nan(""));
    const at::Tensor dw = nan.clone();
    at::Tensor y_ref = at::empty_like(dy), dx_ref = at::empty_like(x), dw_ref = nan.clone();
    for_groups(s, [&](auto of_rows, auto of_weights) {
      const auto in = [](const at::Tensor& t) { return t.to(at::kDouble); };
      const at::Tensor wg = in(w.index({of_weights})), xg = in(x.index({of_rows}));
      const at::Tensor dyg = in(dy.index({of_rows}));
      y_ref.index_put_({of_rows}, xg.mm(wg.t()).to(x.scalar_type()));
      dx_ref.index_put_({of_rows}, dyg.mm(wg).to(x.scalar_type()));
      dw_ref.index_put_({of_weights}, dyg.t().mm(xg).to(x.scalar_type()).to(at::kFloat));
    });
    grouped_product_forward(x, w, s.rows_of_group, y, kind().how);
    expect_close(y, y_ref, "forward");
    grouped_product_input_gradient(dy, w, s.rows_of_group, dx, kind().how);
    expect_close(dx, dx_ref, "input gradient");
    grouped_product_weight_gradient(dy, x, s.rows_of_group, dw, false, kind().how);
    expect_close(dw, dw_ref, "weight gradient");
    const at::Tensor sum = at::randn({weight_rows, s.k}), before = sum.clone();
    grouped_product_weight_gradient(dy, x, s.rows_of_group, sum, true, kind().how);
    expect_close(sum, before + dw_ref, "accumulated weight gradient");
  }
}

// A user's module may hand over tensors that need gradients, while no graph is wanted.
TEST_P(GroupedProduct, TakesTensorsThatNeedGradients) {
  at::manual_seed(2);
  const std::vector<std::int64_t> rows{64, 64};
  const at::Tensor x = normal(128, 64).requires_grad_(), w = normal(256, 64).requires_grad_();
  const c10::NoGradGuard no_graph;
  const at::Tensor y = normal(128, 128);
  grouped_product_forward(x, w, rows, y);
  expect_close(y.narrow(0, 64, 64), x.narrow(0, 64, 64).mm(w.narrow(0, 128, 128).t()), "y");
}

INSTANTIATE_TEST_SUITE_P(
    Types, GroupedProduct,
    ::testing::Combine(::testing::Values(Kind{at::kFloat, F32Products::kF32, 1e-5},
                                         Kind{at::kFloat, F32Products::kThreeBf16, 1e-4},
                                         Kind{at::kBFloat16, F32Products::kF32, 1e-2}),
                       ::testing::Values(1, 3)));

}  // namespace
}  // namespace fourfold
