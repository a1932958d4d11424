#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/bfloat16.h"

/// What the tests of kernels share: data, and comparison with sums in double.
namespace fourfold::kernels {

template <class T>
std::vector<T> random_values(std::int64_t n, std::uint32_t seed, float scale = 1.0f) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<T> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(T(normal(engine)));
  return values;
}

template <class T>
double value_of(T x) {
  return static_cast<double>(static_cast<float>(x));
}

/// Relative rounding of a stored element, and of float sums.
template <class T>
constexpr double kTolerance = std::is_same_v<T, float> ? 2e-5 : 8e-3;

/// Every element within tolerance·(1 + |expected|).
template <class T>
void expect_near(const std::vector<T>& actual, const std::vector<double>& expected,
                 double tolerance, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double a = value_of(actual[i]);
    // Written so that a NaN fails.
    if (!(std::abs(a - expected[i]) <= tolerance * (1 + std::abs(expected[i])))) {
      FAIL() << what << "[" << i << "] is " << a << ", expected " << expected[i];
    }
  }
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         std::memcmp(static_cast<const void*>(a.data()), static_cast<const void*>(b.data()),
                     a.size() * sizeof(T)) == 0;
}

/// Sizes around the vector lengths, and larger ones that don't divide.
inline const std::vector<std::int64_t> kAwkward{1, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 130};

using ElementTypes = ::testing::Types<float, BFloat16>;

}  // namespace fourfold::kernels
