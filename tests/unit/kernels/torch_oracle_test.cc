// The kernels against LibTorch's own operators, in one file: their headers cost seconds.

#include <ATen/ATen.h>

#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/norm.h"
#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

template <class T>
constexpr at::ScalarType kType = std::is_same_v<T, float> ? at::kFloat : at::kBFloat16;

template <class T>
T* data(const at::Tensor& t) {
  return static_cast<T*>(t.data_ptr());
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                  const char* what) {
  ASSERT_EQ(actual.numel(), expected.numel());
  const at::Tensor difference =
      (actual.to(at::kDouble).flatten() - expected.to(at::kDouble).flatten()).abs();
  const double worst =
      (difference / (1 + expected.to(at::kDouble).flatten().abs())).max().item<double>();
  EXPECT_LE(worst, tolerance) << what;
}

template <class T>
class TorchOracleTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(1); }
  at::Tensor normal(at::IntArrayRef shape) {
    return at::randn(shape, at::TensorOptions(at::kFloat)).to(kType<T>);
  }
  static constexpr double kClose = std::is_same_v<T, float> ? 1e-4 : 3e-2;
};
TYPED_TEST_SUITE(TorchOracleTest, ElementTypes);

TYPED_TEST(TorchOracleTest, LayerNorm) {
  using T = TypeParam;
  const at::Tensor x = this->normal({37, 100}), dy = this->normal({37, 100});
  const at::Tensor gain = at::randn({100}), bias = at::randn({100});
  const at::Tensor wide_x = x.to(at::kFloat), wide_dy = dy.to(at::kFloat);
  const auto [y_ref, mean_ref, rstd_ref] =
      at::native_layer_norm(wide_x, at::IntArrayRef{100}, gain, bias, 1e-5);
  const auto [dx_ref, dgain_ref, dbias_ref] = at::native_layer_norm_backward(
      wide_dy, wide_x, at::IntArrayRef{100}, mean_ref, rstd_ref, gain, bias, {true, true, true});
  const at::Tensor y = at::empty_like(x), dx = at::empty_like(x), mean = at::empty({37}),
                   rstd = at::empty({37}), dgain = at::zeros({100}), dbias = at::zeros({100});
  layer_norm_forward(data<T>(x), data<float>(gain), data<float>(bias), 1e-5f, 37, 100, data<T>(y),
                     data<float>(mean), data<float>(rstd));
  norm_backward<T>(data<T>(dy), data<T>(x), data<float>(mean), data<float>(rstd), data<float>(gain),
                   nullptr, 37, 100, data<T>(dx), data<float>(dgain), data<float>(dbias));
  expect_close(y, y_ref, this->kClose, "y");
  expect_close(dx, dx_ref, this->kClose, "dx");
  expect_close(dgain, dgain_ref, 1e-4, "dgain");
  expect_close(dbias, dbias_ref, 1e-4, "dbias");
}

TYPED_TEST(TorchOracleTest, GeluAndCrossEntropy) {
  using T = TypeParam;
  const at::Tensor x = this->normal({11, 70}), dy = this->normal({11, 70});
  const at::Tensor y = at::empty_like(x), dx = at::empty_like(x);
  bias_gelu_forward<T>(data<T>(x), nullptr, 11, 70, data<T>(y));
  bias_gelu_backward<T>(data<T>(dy), data<T>(x), nullptr, 11, 70, data<T>(dx), nullptr);
  expect_close(y, at::gelu(x.to(at::kFloat), "tanh"), this->kClose, "gelu");
  expect_close(dx, at::gelu_backward(dy.to(at::kFloat), x.to(at::kFloat), "tanh"), this->kClose,
               "gelu'");
  const at::Tensor targets = at::randint(70, {11}, at::TensorOptions(at::kLong));
  const at::Tensor max = at::empty({11}), sum = at::empty({11}), target = at::empty({11}),
                   scale = at::full({11}, 0.5f);
  at::Tensor logits = x.clone();
  row_max(data<T>(logits), 11, 70, data<float>(max));
  sum_exp_and_target(data<T>(logits), data<float>(max), data<std::int64_t>(targets), 0, 11, 70,
                     data<float>(sum), data<float>(target));
  softmax_gradient(data<T>(logits), data<float>(max), data<float>(sum), data<std::int64_t>(targets),
                   0, data<float>(scale), 11, 70);
  const at::Tensor log_p = at::log_softmax(x.to(at::kFloat), 1);
  expect_close(sum.log() + max - target, -log_p.gather(1, targets.unsqueeze(1)).squeeze(1), 1e-5,
               "loss");
  const at::Tensor wanted = 0.5 * (log_p.exp() - at::one_hot(targets, 70));
  expect_close(logits, wanted, std::is_same_v<T, float> ? 1e-6 : 4e-3, "gradient");
}

TYPED_TEST(TorchOracleTest, Attention) {
  using T = TypeParam;
  const std::int64_t batch = 2, heads = 3, seq = 150, dim = 40, width = 3 * heads * dim;
  const at::Tensor qkv = this->normal({batch * seq, width});
  const at::Tensor dout = this->normal({batch * seq, heads * dim});
  const at::Tensor out = at::empty_like(dout), dqkv = at::empty_like(qkv),
                   lse = at::empty({batch * heads * seq});
  const auto in = fused_qkv<const T>(data<T>(qkv), seq, heads, heads, dim);
  const auto grads = fused_qkv(data<T>(dqkv), seq, heads, heads, dim);
  const AttentionShape shape{batch, seq, seq, heads, heads, dim};
  const auto out_view = dense_heads(data<T>(out), seq, heads, dim);
  attention_forward<T>(shape, in.q, in.k, in.v, out_view, data<float>(lse), {});
  attention_backward<T>(shape, in.q, in.k, in.v, out_view.as_const(),
                        dense_heads<const T>(data<T>(dout), seq, heads, dim), data<float>(lse),
                        grads.q, grads.k, grads.v, {});
  const at::Tensor wide =
      qkv.to(at::kFloat).view({batch, seq, 3, heads, dim}).permute({2, 0, 3, 1, 4}).contiguous();
  const at::Tensor q = wide[0], k = wide[1], v = wide[2];
  const at::Tensor wide_dout =
      dout.to(at::kFloat).view({batch, seq, heads, dim}).permute({0, 2, 1, 3}).contiguous();
  const auto [out_ref, lse_ref] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0, true);
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      wide_dout, q, k, v, out_ref, lse_ref, 0, true);
  auto rows = [&](const at::Tensor& t) {
    return t.permute({0, 2, 1, 3}).reshape({batch * seq, heads * dim});
  };
  expect_close(out, rows(out_ref), this->kClose, "out");
  expect_close(dqkv, at::cat({rows(dq), rows(dk), rows(dv)}, 1), this->kClose, "dqkv");
}

TEST(TorchOracle, AdamW) {
  at::manual_seed(1);
  const at::Tensor w = at::randn({333}), m = at::zeros({333}), v = at::zeros({333});
  std::vector<at::Tensor> ws{w.clone()}, ms{m.clone()}, vs{v.clone()}, steps{at::zeros({1})};
  AdamWStep step{.lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
  for (std::int64_t t = 1; t <= 4; ++t) {
    std::vector<at::Tensor> grads{at::randn({333})};
    set_bias_corrections(step, t);
    adamw(data<float>(w), data<float>(grads[0]), data<float>(m), data<float>(v), 333, step,
          nullptr);
    steps[0].fill_(static_cast<double>(t));
    at::_fused_adamw_(ws, grads, ms, vs, {}, steps, 1e-2, 0.9, 0.95, 0.1, 1e-8, false, false);
    expect_close(w, ws[0], 1e-6, "w");
    expect_close(m, ms[0], 1e-6, "m");
    expect_close(v, vs[0], 1e-6, "v");
  }
}

}  // namespace
}  // namespace fourfold::kernels
