#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device/tensors.h"
#include "optim/adamw.h"
#include "optim/gradient_norm.h"

namespace fourfold {
namespace {

at::Tensor floats(std::initializer_list<float> values) {
  const at::Tensor t = empty_tensor({static_cast<std::int64_t>(values.size())}, DType::kF32);
  std::copy(values.begin(), values.end(), elements<float>(t));
  return t;
}

OptimizerTensor tensor_of(std::string name, at::Tensor master, at::Tensor gradient) {
  OptimizerTensor t;
  t.name = std::move(name);
  t.exp_avg = zero_tensor(master.sizes(), DType::kF32);
  t.exp_avg_sq = zero_tensor(master.sizes(), DType::kF32);
  t.master = std::move(master);
  t.gradient = std::move(gradient);
  return t;
}

/// Algorithm 2 of the paper in double, for one element over several updates.
double adamw_by_hand(double w, double g, const AdamWOptions& o, double decay, double lr,
                     int updates) {
  double m = 0, v = 0;
  for (int t = 1; t <= updates; ++t) {
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(o.beta1, t)), v_hat = v / (1 - std::pow(o.beta2, t));
    w -= lr * (m_hat / (std::sqrt(v_hat) + o.eps) + decay * w);
  }
  return w;
}

TEST(AdamW, FollowsTheAlgorithmDecayOnlyWhereAsked) {
  const AdamWOptions options;
  OptimizerTensor decays = tensor_of("weight", floats({0.5f, -2, 3}), floats({0.1f, -4, 0}));
  OptimizerTensor stays = tensor_of("bias", floats({0.5f, -2, 3}), floats({0.1f, -4, 0}));
  stays.decay = false;
  const std::vector<OptimizerTensor> tensors{decays, stays};
  const at::Tensor start = decays.master.clone();
  for (int t = 1; t <= 5; ++t) adamw_update(options, tensors, t, 1e-2, 0.5);
  for (int i = 0; i < 3; ++i) {
    const double w = elements<float>(start)[i], g = 0.5 * elements<float>(decays.gradient)[i];
    EXPECT_NEAR(elements<float>(decays.master)[i],
                adamw_by_hand(w, g, options, options.weight_decay, 1e-2, 5), 2e-6);
    EXPECT_NEAR(elements<float>(stays.master)[i], adamw_by_hand(w, g, options, 0, 1e-2, 5), 2e-6);
  }
}

TEST(AdamW, WritesTheBf16CopyInTheSamePass) {
  OptimizerTensor t = tensor_of("w", floats({0.3f, -7, 1e-3f}), floats({1, 2, 3}));
  t.weight = empty_tensor({3}, DType::kBF16);
  adamw_update({}, std::vector<OptimizerTensor>{t}, 1, 1e-3, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(elements<BFloat16>(t.weight)[i].bits, float_to_bf16(elements<float>(t.master)[i]));
  }
}

GradientNorm norm_of(const std::vector<OptimizerTensor>& tensors, Communicator& world) {
  GradientNormSum sum;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    sum.add(tensors[i], static_cast<int>(i));
    names.push_back(tensors[i].name);
  }
  return sum.combine(names, world);
}

TEST(GradientNorm, CountsEachElementOnceAndNamesTheFirstBadTensor) {
  const auto solo = make_solo();
  std::vector<OptimizerTensor> tensors{tensor_of("a", floats({0, 0}), floats({3, 0})),
                                       tensor_of("copy", floats({0}), floats({100})),
                                       tensor_of("b", floats({0}), floats({4}))};
  tensors[1].counted = false;
  EXPECT_DOUBLE_EQ(norm_of(tensors, *solo).norm, 5);
  elements<float>(tensors[2].gradient)[0] = std::numeric_limits<float>::infinity();
  const GradientNorm bad = norm_of(tensors, *solo);
  EXPECT_EQ(bad.non_finite, 1);
  EXPECT_EQ(bad.first_bad, "b");
}

TEST(GradientNorm, ClipsToTheLimitOnly) {
  EXPECT_DOUBLE_EQ(clip_factor(4, 1), 0.25);
  EXPECT_DOUBLE_EQ(clip_factor(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(clip_factor(4, 0), 1);
}

}  // namespace
}  // namespace fourfold
