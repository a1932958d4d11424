#include "kernels/few_rows.h"

#include <algorithm>

#include "kernels/vector/tables.h"
#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

// Sizes around panels, blocks of weights and depths; what lies between the rows of y is left alone.
TEST(FewRows, ProductMatchesTheFormula) {
  for (std::int64_t rows : {0, 1, 5, 16, 33, 70}) {
    for (std::int64_t n : {1, 7, 47, 48, 100}) {
      for (std::int64_t k : {1, 30, 256, 300}) {
        const std::int64_t stride = n + 3;
        const auto x = random_values<float>(rows * k, 1), w = random_values<float>(n * k, 2);
        std::vector<float> y(rows * stride, 7.0f);
        few_rows_product(x.data(), w.data(), rows, n, k, y.data(), stride);
        std::vector<double> expected(y.size(), 7.0);
        for (std::int64_t i = 0; i < rows * n; ++i) {
          double& sum = expected[i / n * stride + i % n] = 0;
          for (std::int64_t j = 0; j < k; ++j) {
            sum += value_of(x[i / n * k + j]) * value_of(w[i % n * k + j]);
          }
        }
        expect_near(y, expected, 2e-5, "y");
      }
    }
  }
}

TEST(FewRows, OfNothingAreZeros) {
  std::vector<float> y(2 * 5, 7.0f);
  few_rows_product(nullptr, nullptr, 2, 3, 0, y.data(), 5);
  EXPECT_EQ(y, (std::vector<float>{0, 0, 0, 7, 7, 0, 0, 0, 7, 7}));
}

TEST(FewRows, CapabilitiesAgree) {
  const std::int64_t rows = 37, n = 59, k = 300;
  const auto x = random_values<float>(rows * k, 1), w = random_values<float>(n * k, 2);
  std::vector<double> expected;
  for (Capability c : {Capability::kDefault, Capability::kAvx2, Capability::kAvx512}) {
    if (tables_of(c) == nullptr) continue;
    const FewRowsTable& table = tables_of(c)->few_rows;
    std::vector<float> y(rows * n), scratch(table.scratch(rows, k));
    table.product(x.data(), w.data(), rows, n, k, y.data(), n, scratch.data());
    if (expected.empty()) expected.assign(y.begin(), y.end());
    expect_near(y, expected, 2e-5, "y");
  }
}

}  // namespace
}  // namespace fourfold::kernels
