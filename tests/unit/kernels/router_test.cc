#include "kernels/router.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "device/intra_op_threads.h"
#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

using Row = std::vector<double>;

Row softmax(const Row& x) {
  const double max = *std::max_element(x.begin(), x.end());
  Row p;
  for (double v : x) p.push_back(std::exp(v - max));
  const double total = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& v : p) v /= total;
  return p;
}

Row scores_of(const Row& logits, bool sigmoid) {
  if (!sigmoid) return softmax(logits);
  Row s;
  for (double v : logits) s.push_back(1 / (1 + std::exp(-v)));
  return s;
}

double log_sum_exp(const Row& x) {
  double total = 0;
  for (double v : x) total += std::exp(v);
  return std::log(total);
}

template <class T>
Row row_of(const std::vector<T>& all, std::int64_t row, std::int64_t cols) {
  return {all.begin() + row * cols, all.begin() + (row + 1) * cols};
}

const std::vector<std::int64_t> kExperts{1, 2, 7, 64};

TEST(Router, ScoresMatchTheFormulas) {
  const std::int64_t rows = 5;
  for (std::int64_t experts : kExperts) {
    const auto logits = random_values<float>(rows * experts, 1, 4.0f);
    for (bool sigmoid : {false, true}) {
      std::vector<float> scores(logits.size());
      router_scores(logits.data(), rows, experts, sigmoid, scores.data());
      std::vector<double> expected;
      for (std::int64_t r = 0; r < rows; ++r) {
        const Row row = scores_of(row_of(logits, r, experts), sigmoid);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      expect_near(scores, expected, 1e-7, sigmoid ? "sigmoid" : "softmax");
    }
  }
  const std::vector<float> large{1000, 999, -1000};
  std::vector<float> scores(3);
  router_scores(large.data(), 1, 3, false, scores.data());
  expect_near(scores, softmax({1000, 999, -1000}), 1e-7, "large");
}

TEST(Router, ChoosesTheBestAndTheLowerOfEqualOnes) {
  const std::int64_t rows = 50, experts = 7;
  auto scores = random_values<float>(rows * experts, 1);
  for (float& s : scores) s = std::round(4 * s) / 4;  // Many are equal; sums with them are exact.
  const std::vector<float> bias{0, 0.25f, 0, -0.5f, 0, 1, 0};
  for (const float* added : {static_cast<const float*>(nullptr), bias.data()}) {
    for (int top_k = 1; top_k <= experts; ++top_k) {
      std::vector<std::int32_t> chosen(rows * top_k);
      std::vector<float> margin(rows);
      choose_experts(scores.data(), added, rows, experts, top_k, chosen.data(), margin.data());
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto value = [&](int e) {
          return scores[r * experts + e] + (added != nullptr ? added[e] : 0);
        };
        std::vector<std::int32_t> order(experts);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int a, int b) { return value(a) > value(b); });
        ASSERT_TRUE(std::equal(order.begin(), order.begin() + top_k, chosen.begin() + r * top_k));
        ASSERT_EQ(margin[r], top_k == experts ? std::numeric_limits<float>::infinity()
                                              : value(order[top_k - 1]) - value(order[top_k]));
      }
    }
  }
}

TEST(Router, NansAreChosenOnceAtMost) {
  const float nan = std::nanf("");
  for (const std::vector<float>& scores :
       {std::vector<float>{nan, nan, nan, nan}, {nan, 1, nan, 2}, {1, nan, 2, 3}}) {
    std::vector<std::int32_t> chosen(2, -1);
    choose_experts(scores.data(), nullptr, 1, 4, 2, chosen.data(), nullptr);
    EXPECT_NE(chosen[0], chosen[1]);
    for (std::int32_t e : chosen) EXPECT_TRUE(e >= 0 && e < 4) << e;
  }
}

TEST(Router, CombineWeightsAreTheChosenScores) {
  const std::vector<float> scores{0.5f, 0.25f, 0.125f, 0.125f, 0, 0, 0, 0};
  const std::vector<std::int32_t> chosen{1, 2, 3, 0};
  std::vector<float> weights(4);
  combine_weights(scores.data(), chosen.data(), 2, 4, 2, false, weights.data());
  EXPECT_EQ(weights, (std::vector<float>{0.25f, 0.125f, 0, 0}));
  combine_weights(scores.data(), chosen.data(), 2, 4, 2, true, weights.data());
  expect_near(weights, {2.0 / 3, 1.0 / 3, 0, 0}, 1e-7, "renormalised; zeros stay zeros");
}

struct Case {
  bool sigmoid, renormalise, balance;
  float z_coefficient;
};

// A loss of one row whose gradients with respect to its parts are the given numbers.
double loss(const Case& c, const Row& logits, const std::vector<std::int32_t>& chosen,
            const Row& d_weights, const Row& d_probabilities) {
  const Row s = scores_of(logits, c.sigmoid);
  double of_chosen = 1, of_all = 1, total = 0;
  if (c.renormalise) of_chosen = 0;
  for (std::int32_t e : chosen) of_chosen += c.renormalise ? s[e] : 0;
  if (c.sigmoid) of_all = std::accumulate(s.begin(), s.end(), 0.0);
  for (std::size_t j = 0; j < chosen.size(); ++j) total += d_weights[j] * s[chosen[j]] / of_chosen;
  for (std::size_t e = 0; c.balance && e < s.size(); ++e)
    total += d_probabilities[e] * s[e] / of_all;
  const double lse = log_sum_exp(logits);
  return total + c.z_coefficient * lse * lse;
}

TEST(Router, BackwardIsTheSlopeOfTheLoss) {
  const std::int64_t rows = 4, experts = 7;
  const auto logits = random_values<float>(rows * experts, 1, 2.0f);
  const auto d_probabilities = random_values<float>(rows * experts, 2);
  for (int top_k : {1, 3, 7}) {
    const auto d_weights = random_values<float>(rows * top_k, 3);
    for (int bits = 0; bits < 16; ++bits) {
      const Case c{(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0 ? 0.3f : 0};
      std::vector<float> scores(logits.size()), d_logits(logits.size(), 7.0f);
      std::vector<std::int32_t> chosen(rows * top_k);
      router_scores(logits.data(), rows, experts, c.sigmoid, scores.data());
      choose_experts(scores.data(), nullptr, rows, experts, top_k, chosen.data(), nullptr);
      router_backward({.sigmoid = c.sigmoid,
                       .renormalise = c.renormalise,
                       .top_k = top_k,
                       .scores = scores.data(),
                       .chosen = chosen.data(),
                       .d_weights = d_weights.data(),
                       .d_probabilities = c.balance ? d_probabilities.data() : nullptr,
                       .z_coefficient = c.z_coefficient,
                       .logits = c.z_coefficient != 0 ? logits.data() : nullptr},
                      rows, experts, d_logits.data());
      std::vector<double> expected;
      for (std::int64_t i = 0; i < rows * experts; ++i) {
        const std::int64_t r = i / experts;
        const std::vector<std::int32_t> own{chosen.begin() + r * top_k,
                                            chosen.begin() + (r + 1) * top_k};
        const auto at = [&](double step) {
          Row moved = row_of(logits, r, experts);
          moved[i % experts] += step;
          return loss(c, moved, own, row_of(d_weights, r, top_k),
                      row_of(d_probabilities, r, experts));
        };
        expected.push_back((at(1e-5) - at(-1e-5)) / 2e-5);
      }
      expect_near(d_logits, expected, 1e-6, "d_logits");
    }
  }
}

TEST(Router, SumsMatchTheFormulas) {
  const std::int64_t rows = 6;
  for (std::int64_t experts : kExperts) {
    const auto logits = random_values<float>(rows * experts, 1, 3.0f);
    double z = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      z += std::pow(log_sum_exp(row_of(logits, r, experts)), 2);
    }
    EXPECT_NEAR(z_loss_sum(logits.data(), rows, experts), z, 1e-12 * (1 + z));
    for (bool sigmoid : {false, true}) {
      std::vector<float> scores(logits.size());
      router_scores(logits.data(), rows, experts, sigmoid, scores.data());
      double entropy = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        Row p = row_of(scores, r, experts);
        const double total = sigmoid ? std::accumulate(p.begin(), p.end(), 0.0) : 1;
        for (double v : p) entropy -= v / total * std::log(v / total);
      }
      EXPECT_NEAR(entropy_sum(scores.data(), rows, experts, sigmoid), entropy, 1e-12);
    }
  }
  const std::vector<float> certain{1, 0, 0, 0};
  EXPECT_EQ(entropy_sum(certain.data(), 1, 4, false), 0);
}

TEST(Router, BalanceSumMatchesTheFormula) {
  const std::int64_t rows = 6, experts = 5, per_scope = 3;
  const auto logits = random_values<float>(rows * experts, 3, 2.0f);
  const std::vector<float> share{0.1f, 0.2f, 0.3f, 0.4f, 0, 0.5f, 0, 0.25f, 0.125f, 0.125f};
  for (const bool sigmoid : {false, true}) {
    std::vector<float> scores(logits.size());
    router_scores(logits.data(), rows, experts, sigmoid, scores.data());
    double expected = 0;
    for (std::int64_t r = 0; r < rows; ++r) {
      double sum = 0, total = 0;
      for (std::int64_t e = 0; e < experts; ++e) {
        const double score = scores[r * experts + e];
        sum += score * share[r / per_scope * experts + e];
        total += score;
      }
      expected += sigmoid ? sum / total : sum;
    }
    EXPECT_NEAR(balance_sum(scores.data(), share.data(), rows, experts, per_scope, sigmoid),
                expected, 1e-12);
  }
  const std::vector<float> nothing(5, 0.0f);
  EXPECT_EQ(balance_sum(nothing.data(), share.data(), 1, 5, 1, true), 0);  // Underflowed sigmoids.
}

// Rows enough for threads.
TEST(Router, BitsDontDependOnTheThreads) {
  const std::int64_t rows = 1003, experts = 64;
  const int top_k = 8, threads = intra_op_threads();
  const auto logits = random_values<float>(rows * experts, 1, 3.0f);
  const auto d_weights = random_values<float>(rows * top_k, 2);
  std::vector<float> results[2];
  double sums[2][2];
  for (int i : {0, 1}) {
    set_intra_op_threads(1 + 2 * i);
    std::vector<float> scores(logits.size()), margin(rows), weights(rows * top_k);
    std::vector<std::int32_t> chosen(rows * top_k);
    results[i].resize(logits.size());
    router_scores(logits.data(), rows, experts, false, scores.data());
    choose_experts(scores.data(), nullptr, rows, experts, top_k, chosen.data(), margin.data());
    combine_weights(scores.data(), chosen.data(), rows, experts, top_k, true, weights.data());
    router_backward({.renormalise = true,
                     .top_k = top_k,
                     .scores = scores.data(),
                     .chosen = chosen.data(),
                     .d_weights = d_weights.data(),
                     .z_coefficient = 0.1f,
                     .logits = logits.data()},
                    rows, experts, results[i].data());
    for (const auto& more : {scores, margin, weights}) {
      results[i].insert(results[i].end(), more.begin(), more.end());
    }
    sums[i][0] = z_loss_sum(logits.data(), rows, experts);
    sums[i][1] = entropy_sum(scores.data(), rows, experts, false);
  }
  set_intra_op_threads(threads);
  EXPECT_TRUE(same_bits(results[0], results[1]));
  EXPECT_EQ(sums[0][0], sums[1][0]);
  EXPECT_EQ(sums[0][1], sums[1][1]);
}

}  // namespace
}  // namespace fourfold::kernels
