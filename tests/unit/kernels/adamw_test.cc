#include "kernels/adamw.h"

#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

TEST(AdamW, FollowsTheFormulaOverSteps) {
  for (std::int64_t n : {1, 15, 16, 17, 1000}) {
    auto w = random_values<float>(n, 1);
    std::vector<float> m(n, 0.0f), v(n, 0.0f);
    std::vector<double> w_ref(w.begin(), w.end()), m_ref(n, 0.0), v_ref(n, 0.0);
    std::vector<BFloat16> copy(n);
    AdamWStep step{.lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f};
    step.grad_scale = 0.5f;
    for (std::int64_t t = 1; t <= 5; ++t) {
      const auto grad = random_values<float>(n, 10 + static_cast<std::uint32_t>(t));
      set_bias_corrections(step, t);
      adamw(w.data(), grad.data(), m.data(), v.data(), n, step, copy.data());
      const double c1 = 1 - std::pow(double{0.9f}, t), c2 = 1 - std::pow(double{0.95f}, t);
      for (std::int64_t i = 0; i < n; ++i) {
        const double g = grad[i] * 0.5;
        w_ref[i] *= 1 - double{step.lr} * step.weight_decay;
        m_ref[i] = 0.9 * m_ref[i] + 0.1 * g;
        v_ref[i] = 0.95 * v_ref[i] + 0.05 * g * g;
        w_ref[i] -= step.lr / c1 * m_ref[i] / (std::sqrt(v_ref[i]) / std::sqrt(c2) + 1e-8);
      }
      expect_near(w, w_ref, 1e-5, "w");
      expect_near(m, m_ref, 1e-5, "m");
      expect_near(v, v_ref, 1e-5, "v");
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(copy[i].bits, float_to_bf16(w[i]));
    }
  }
}

TEST(AdamW, BitsDontDependOnTheCut) {
  const std::int64_t n = 101, cut = 37;
  AdamWStep step{.lr = 1e-2f, .weight_decay = 0.1f};
  set_bias_corrections(step, 3);
  const auto grad = random_values<float>(n, 2);
  auto w = random_values<float>(n, 1), m = random_values<float>(n, 3);
  std::vector<float> v(n, 0.3f);
  auto w2 = w, m2 = m, v2 = v;
  adamw(w.data(), grad.data(), m.data(), v.data(), n, step, nullptr);
  adamw(w2.data(), grad.data(), m2.data(), v2.data(), cut, step, nullptr);
  adamw(w2.data() + cut, grad.data() + cut, m2.data() + cut, v2.data() + cut, n - cut, step,
        nullptr);
  EXPECT_TRUE(same_bits(w, w2));
  EXPECT_TRUE(same_bits(v, v2));
}

}  // namespace
}  // namespace fourfold::kernels
