#include "kernels/tile_product.h"

#include <cmath>

#include "kernels/vector/tables.h"
#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

// A factor of random values [rows, depth], with room between the rows (or, transposed, columns).
template <class T>
struct RandomFactor {
  RandomFactor(std::int64_t rows, std::int64_t depth, bool turned, std::uint32_t seed)
      : stride((turned ? rows : depth) + 5),
        transposed(turned),
        values(random_values<T>((turned ? depth : rows) * stride, seed)) {}
  Factor<T> factor() const { return {values.data(), stride, transposed}; }
  double at(std::int64_t i, std::int64_t c) const {
    return value_of(values[transposed ? c * stride + i : i * stride + c]);
  }
  std::int64_t stride;
  bool transposed;
  std::vector<T> values;
};

struct Case {
  ProductShape shape;
  bool left_transposed, right_transposed, accumulate;
};

// Of every product of the case: the value, and how far its terms may let it be off in bf16's or
// float's arithmetic. What lies between the rows of the result is left alone.
template <class T, class Out>
void expect_product(const Case& c, double of_terms) {
  const RandomFactor<T> left(c.shape.rows, c.shape.depth, c.left_transposed, 1);
  const RandomFactor<T> right(c.shape.cols, c.shape.depth, c.right_transposed, 2);
  const std::int64_t stride = c.shape.cols + 3;
  std::vector<Out> out = random_values<Out>(c.shape.rows * stride, 3);
  const std::vector<Out> before = out;
  tile_product(left.factor(), right.factor(), c.shape,
               ProductTarget<Out>{out.data(), stride, c.accumulate});
  const double rounding = std::is_same_v<Out, float> ? 1e-7 : 4e-3;
  for (std::int64_t i = 0; i < c.shape.rows * stride; ++i) {
    double expected = value_of(before[i]), terms = 0;
    if (i % stride < c.shape.cols) {
      if (!c.accumulate) expected = 0;
      for (std::int64_t at = 0; at < c.shape.depth; ++at) {
        const double term = left.at(i / stride, at) * right.at(i % stride, at);
        expected += term;
        terms += std::abs(term);
      }
    }
    ASSERT_NEAR(value_of(out[i]), expected, of_terms * terms + rounding * std::abs(expected))
        << "row " << i / stride << " column " << i % stride << " of " << c.shape.rows << " x "
        << c.shape.cols << ", depth " << c.shape.depth << ", transposed " << c.left_transposed
        << c.right_transposed;
  }
}

class TileProduct : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_tile_product()) GTEST_SKIP() << "needs a CPU with AMX for bf16";
  }
  // Sizes around tiles, panels, blocks and chunks.
  static std::vector<Case> cases() {
    std::vector<Case> cases;
    for (ProductShape shape : {ProductShape{1, 1, 1},
                               {15, 33, 31},
                               {32, 16, 64},
                               {33, 70, 513},
                               {300, 40, 100},
                               {40, 300, 1030},
                               {270, 290, 48}}) {
      for (int bits = 0; bits < 8; ++bits) {
        cases.push_back({shape, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0});
      }
    }
    return cases;
  }
};

TEST_F(TileProduct, OfBf16MatchesTheFormula) {
  for (const Case& c : cases()) {
    expect_product<BFloat16, float>(c, 1e-6);
    expect_product<BFloat16, BFloat16>(c, 1e-6);
  }
}

// The terms that are left out and the rounding of lo are 2^-17 of a term each at the most.
TEST_F(TileProduct, OfFloatsIsExactToSeventeenBits) {
  for (const Case& c : cases()) expect_product<float, float>(c, std::ldexp(1.0, -16));
}

TEST_F(TileProduct, OverNothingIsZeroOrWhatIsThere) {
  std::vector<float> out(2 * 5, 7.0f);
  const Factor<float> nothing{nullptr, 0};
  tile_product(nothing, nothing, {2, 3, 0}, ProductTarget<float>{out.data(), 5, true});
  EXPECT_EQ(out, std::vector<float>(10, 7.0f));
  tile_product(nothing, nothing, {2, 3, 0}, ProductTarget<float>{out.data(), 5});
  EXPECT_EQ(out, (std::vector<float>{0, 0, 0, 7, 7, 0, 0, 0, 7, 7}));
  tile_product(nothing, nothing, {0, 3, 4}, ProductTarget<float>{nullptr, 3});
}

}  // namespace
}  // namespace fourfold::kernels
