#include "parallel/products.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>

#include "device/intra_op_threads.h"
#include "kernels/tile_product.h"

namespace fourfold {
namespace {

struct Kind {
  std::string name;
  at::ScalarType type;
  F32Products how;
  double slack;  ///< Of a product of normal numbers, in its terms' root mean square.
};

class Products : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam().how == F32Products::kThreeBf16 && !kernels::has_tile_product()) {
      GTEST_SKIP() << "needs a CPU with AMX for bf16";
    }
    set_intra_op_threads(2);
    at::manual_seed(1);
  }
  void TearDown() override { set_intra_op_threads(threads_); }

  static at::Tensor normal(std::int64_t rows, std::int64_t cols) {
    return at::randn({rows, cols}).to(GetParam().type);
  }
  static at::Tensor exact(const at::Tensor& a, const at::Tensor& b) {
    return a.to(at::kDouble).mm(b.to(at::kDouble));
  }
  // NaNs fail.
  static void expect_close(const at::Tensor& actual, const at::Tensor& expected, std::int64_t terms,
                           const char* what) {
    ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
    const double most = (actual.to(at::kDouble) - expected).abs().max().item<double>();
    EXPECT_TRUE(most <= GetParam().slack * std::sqrt(static_cast<double>(terms)))
        << what << " is off by " << most;
  }

 private:
  const int threads_ = intra_op_threads();
};

TEST_P(Products, MatchDoubles) {
  const F32Products how = GetParam().how;
  for (const auto& [m, k, n] : {std::tuple{1, 1, 1}, {70, 33, 65}, {200, 520, 300}}) {
    const at::Tensor x = normal(m, k), w = normal(n, k), dy = normal(m, n);
    expect_close(product_forward(x, w, how), exact(x, w.t()), k, "forward");
    expect_close(product_input_gradient(dy, w, how), exact(dy, w), n, "input gradient");
    const at::Tensor dw = at::full({n, k}, std::nan("")), sum = at::randn({n, k});
    const at::Tensor gradient = exact(dy.t(), x), with_sum = gradient + sum;
    product_weight_gradient(dy, x, dw, false, how);
    expect_close(dw, gradient, m, "weight gradient");
    product_weight_gradient(dy, x, sum, true, how);
    expect_close(sum, with_sum, m, "accumulated weight gradient");
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Products,
                         ::testing::Values(Kind{"fp32", at::kFloat, F32Products::kF32, 1e-5},
                                           Kind{"fp32x3", at::kFloat, F32Products::kThreeBf16,
                                                6e-5},
                                           Kind{"bf16", at::kBFloat16, F32Products::kF32, 5e-2}),
                         [](const auto& kind) { return kind.param.name; });

// Less than f32 and far more than bf16: three products it is.
TEST(ThreeBf16Products, HaveTheErrorThatIsStated) {
  if (!kernels::has_tile_product()) GTEST_SKIP() << "needs a CPU with AMX for bf16";
  at::manual_seed(1);
  const at::Tensor x = at::randn({64, 256}), w = at::randn({64, 256});
  const at::Tensor exact = x.to(at::kDouble).mm(w.t().to(at::kDouble));
  const at::Tensor error = product_forward(x, w, F32Products::kThreeBf16) - exact;
  const double relative = error.norm().item<double>() / exact.norm().item<double>();
  EXPECT_GT(relative, 1e-6);
  EXPECT_LT(relative, 1e-5);
}

}  // namespace
}  // namespace fourfold
