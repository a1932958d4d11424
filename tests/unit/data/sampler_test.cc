#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"

namespace fourfold {
namespace {

/// A file of tokens 0, 1, 2, ... modulo 1000.
TokenFile counting_file(std::int64_t tokens) {
  const std::string prefix = testing::TempDir() + "/sampler_" + std::to_string(tokens);
  TokenFileWriter writer(prefix, TokenType::kU16);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto token = static_cast<std::int32_t>(t % 1000);
    writer.append({&token, 1});
    if (t % 37 == 36) writer.end_document();
  }
  writer.finish();
  return TokenFile::open(prefix).value();
}

TEST(KeyedPermutation, IsABijectionOfAnySize) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 64, 65, 1000, 4099}) {
    for (const std::int64_t epoch : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1} << 40}) {
      const KeyedPermutation permutation(size, {1, 2});
      std::vector<bool> seen(static_cast<std::size_t>(size));
      for (std::int64_t i = 0; i < size; ++i) {
        const auto at = permutation.at(i, epoch);
        ASSERT_TRUE(at >= 0 && at < size);
        ASSERT_FALSE(seen[static_cast<std::size_t>(at)]) << size;
        seen[static_cast<std::size_t>(at)] = true;
      }
    }
  }
  const KeyedPermutation large((std::int64_t{1} << 50) + 7, {1, 2});
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 1000; ++i) seen.insert(large.at(i, 0));
  EXPECT_EQ(seen.size(), 1000u);
}

/// Where an element goes is uniform: chi-square over 16 places of 1600 epochs, and neighbours do
/// not stay neighbours.
TEST(KeyedPermutation, LooksRandom) {
  constexpr int kSize = 16, kEpochs = 1600;
  const KeyedPermutation permutation(kSize, {3, 4});
  for (std::int64_t index = 0; index < kSize; ++index) {
    std::vector<int> counts(kSize);
    for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      ++counts[static_cast<std::size_t>(permutation.at(index, epoch))];
    }
    double chi_square = 0;
    for (const int count : counts) chi_square += std::pow(count - 100.0, 2) / 100.0;
    EXPECT_LT(chi_square, 50) << index;  // 15 degrees of freedom: 1 in 100,000 above 50.
  }
  const KeyedPermutation order(10'007, {5, 6});
  int together = 0, fixed = 0;
  double product = 0;
  for (std::int64_t i = 0; i + 1 < 10'007; ++i) {
    together += std::abs(order.at(i, 0) - order.at(i + 1, 0)) == 1 ? 1 : 0;
    fixed += order.at(i, 0) == i ? 1 : 0;
    product += (static_cast<double>(i) / 10'007 - 0.5) *
               (static_cast<double>(order.at(i, 0)) / 10'007 - 0.5);
  }
  EXPECT_LT(together, 15);
  EXPECT_LT(fixed, 10);
  EXPECT_LT(std::abs(product / 10'007 * 12), 0.05);  // Correlation with the order of the file.
}

TEST(Sampler, EachEpochSeesEachWindowOnce) {
  const TokenFile file = counting_file(1003);
  const Sampler sampler(file, 10, 1000, /*seed=*/7);
  ASSERT_EQ(sampler.samples_per_epoch(), 100);
  std::vector<std::vector<std::int64_t>> epochs;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    auto& order = epochs.emplace_back();
    for (std::int64_t i = 0; i < 100; ++i) {
      order.push_back(sampler.window(epoch * 100 + i));
      EXPECT_EQ(sampler.epoch(epoch * 100 + i), epoch);
    }
    auto sorted = order;
    std::ranges::sort(sorted);
    std::vector<std::int64_t> all(100);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(sorted, all);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  const Sampler again(file, 10, 1000, 7), other(file, 10, 1000, 8);
  EXPECT_EQ(again.window(123), sampler.window(123));
  bool differs = false;
  for (std::int64_t i = 0; i < 100; ++i) differs |= other.window(i) != sampler.window(i);
  EXPECT_TRUE(differs);
}

/// The order is part of what a checkpoint relies on: it must never change.
TEST(Sampler, TheOrderIsFixed) {
  const TokenFile file = counting_file(1003);
  const Sampler sampler(file, 10, 1000, 1234);
  std::vector<std::int64_t> windows;
  for (const std::int64_t i : {0, 1, 2, 99, 100, 12345}) windows.push_back(sampler.window(i));
  EXPECT_EQ(windows, (std::vector<std::int64_t>{23, 77, 4, 43, 92, 32}));
}

TEST(Sampler, FillsInputsAndTheTokensThatFollow) {
  const TokenFile file = counting_file(101);
  const Sampler sampler(file, 10, 101, 7);
  for (std::int64_t i = 0; i < sampler.samples_per_epoch(); ++i) {
    std::int64_t inputs[10], targets[10];
    sampler.fill(i, inputs, targets);
    for (int t = 0; t < 10; ++t) {
      EXPECT_EQ(inputs[t], sampler.window(i) * 10 + t);
      EXPECT_EQ(targets[t], inputs[t] + 1);
    }
  }
  const WindowReader windows(file, 10, 101);
  ASSERT_EQ(windows.windows(), 10);
  std::int64_t inputs[10], targets[10];
  windows.fill(9, inputs, targets);
  EXPECT_EQ(inputs[0], 90);
  EXPECT_EQ(targets[9], 100);
}

TEST(Sampler, RefusesShortFilesAndForeignTokens) {
  const TokenFile file = counting_file(101);
  EXPECT_EQ(Sampler(file, 100, 1000, 1).samples_per_epoch(), 1);
  try {
    Sampler(file, 101, 1000, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
    EXPECT_NE(std::string(error.what()).find("101 tokens; a sequence of 101 needs 102"),
              std::string::npos);
  }
  std::int64_t inputs[100], targets[100];
  EXPECT_NO_THROW(Sampler(file, 100, 101, 1).fill(0, inputs, targets));
  try {
    Sampler(file, 100, 100, 1).fill(0, inputs, targets);  // Only the last target is too large.
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("token 100, but the model's vocabulary is 100"),
              std::string::npos);
  }
  EXPECT_THROW(Sampler(file, 100, 50, 1).fill(0, inputs, targets), Error);
}

}  // namespace
}  // namespace fourfold
