#include "train/token_sampler.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace fourfold {
namespace {

constexpr std::array<float, 4> kLogits{0.0f, 2.0f, 1.0f, 2.0f};

TEST(TokenSampler, GreedyTakesTheLowestOfTheMostLikely) {
  SamplingOptions options;
  options.temperature = 0;
  EXPECT_EQ(sample_token(kLogits, options, 0, 0), 1);
}

TEST(TokenSampler, IsAFunctionOfSeedSequenceAndPosition) {
  SamplingOptions options;
  options.seed = 5;
  int differs = 0;
  for (int position = 0; position < 100; ++position) {
    const auto token = sample_token(kLogits, options, 3, position);
    EXPECT_EQ(token, sample_token(kLogits, options, 3, position));
    differs += token != sample_token(kLogits, options, 4, position);
  }
  EXPECT_GT(differs, 20);
}

std::array<double, 4> shares(const SamplingOptions& options) {
  std::array<double, 4> counts{};
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) counts[sample_token(kLogits, options, 0, i)] += 1.0 / kDraws;
  return counts;
}

TEST(TokenSampler, DrawsBySoftmaxOfTheTemperature) {
  SamplingOptions options;
  options.temperature = 0.5;
  const auto found = shares(options);
  double total = 0;
  for (float l : kLogits) total += std::exp(l / 0.5);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(found[i], std::exp(kLogits[i] / 0.5) / total, 0.015);
}

TEST(TokenSampler, TopKAndTopPLeaveOutTheRest) {
  SamplingOptions options;
  options.top_k = 2;
  auto found = shares(options);
  EXPECT_EQ(found[0] + found[2], 0);
  EXPECT_NEAR(found[1], 0.5, 0.015);
  options = {};
  options.top_p = 0.85;  // The two most likely hold 0.80 of it, so the third is needed.
  found = shares(options);
  EXPECT_EQ(found[0], 0);
  EXPECT_GT(found[2], 0.1);
}

}  // namespace
}  // namespace fourfold
