#include "kernels/cross_entropy.h"

#include <limits>

#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

template <class T>
class CrossEntropyTest : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropyTest, ElementTypes);

// Two uneven shards, statistics merged as ranks would, against log-softmax in double.
TYPED_TEST(CrossEntropyTest, ShardsGiveTheWholeVocabularysLossAndGradient) {
  using T = TypeParam;
  const std::int64_t rows = 6;
  for (std::int64_t vocab : {2, 17, 65, 1003}) {
    for (std::int64_t cut : {std::int64_t{1}, vocab / 2, vocab}) {
      const auto logits = random_values<T>(rows * vocab, 1, 4.0f);
      std::vector<std::int64_t> targets{0, vocab - 1, vocab / 2, kIgnoredTarget, cut - 1, 1};
      std::vector<float> scale{1, 0.5f, 2, 0, 1, 1}, max(rows), sum(rows, 0.0f), target(rows, 0.0f);
      std::vector<T> part[2];
      const std::int64_t begin[2] = {0, cut}, size[2] = {cut, vocab - cut};
      for (int s = 0; s < 2; ++s) {
        for (std::int64_t r = 0; r < rows; ++r) {
          const auto first = logits.begin() + r * vocab + begin[s];
          part[s].insert(part[s].end(), first, first + size[s]);
        }
        std::vector<float> own(rows);
        row_max(part[s].data(), rows, size[s], own.data());
        for (std::int64_t r = 0; r < rows; ++r) max[r] = s == 0 ? own[r] : std::max(max[r], own[r]);
      }
      for (int s = 0; s < 2; ++s) {
        std::vector<float> own_sum(rows), own_target(rows);
        sum_exp_and_target(part[s].data(), max.data(), targets.data(), begin[s], rows, size[s],
                           own_sum.data(), own_target.data());
        for (std::int64_t r = 0; r < rows; ++r) sum[r] += own_sum[r], target[r] += own_target[r];
      }
      for (int s = 0; s < 2; ++s) {
        softmax_gradient(part[s].data(), max.data(), sum.data(), targets.data(), begin[s],
                         scale.data(), rows, size[s]);
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        double total = 0;
        for (std::int64_t i = 0; i < vocab; ++i) total += std::exp(value_of(logits[r * vocab + i]));
        if (targets[r] >= 0) {
          const double wanted = std::log(total) - value_of(logits[r * vocab + targets[r]]);
          EXPECT_NEAR(std::log(sum[r]) + max[r] - target[r], wanted, 1e-5 * (1 + wanted));
        } else {
          EXPECT_EQ(target[r], 0.0f);
        }
        for (std::int64_t i = 0; i < vocab; ++i) {
          const double p = std::exp(value_of(logits[r * vocab + i])) / total;
          const double wanted = (p - (i == targets[r] ? 1 : 0)) * scale[r];
          const int s = i < cut ? 0 : 1;
          ASSERT_NEAR(value_of(part[s][r * size[s] + i - begin[s]]), wanted,
                      (std::is_same_v<T, float> ? 1e-6 : 4e-3) * std::abs(wanted) + 1e-7)
              << "row " << r << " column " << i;
        }
      }
    }
  }
}

TEST(CrossEntropy, EmptyShardsAndNansAreSeen) {
  const float nan = std::nanf("");
  std::vector<float> max(1), logits(40, 1.0f);
  row_max(logits.data(), 1, 0, max.data());
  EXPECT_EQ(max[0], -std::numeric_limits<float>::infinity());
  const std::int64_t target = 3;
  float sum = 0, target_logit = 0;
  for (std::size_t at : {0u, 5u, 17u, 39u}) {
    logits[at] = nan;
    row_max(logits.data(), 1, 40, max.data());
    EXPECT_EQ(max[0], 1.0f) << at;
    sum_exp_and_target(logits.data(), max.data(), &target, 0, 1, 40, &sum, &target_logit);
    EXPECT_TRUE(std::isnan(sum)) << at;
    logits[at] = -50.0f;
  }
  std::fill(logits.begin(), logits.end(), -3.0f);  // Padding must not win as zeros.
  row_max(logits.data(), 1, 39, max.data());
  EXPECT_EQ(max[0], -3.0f);
}

}  // namespace
}  // namespace fourfold::kernels
