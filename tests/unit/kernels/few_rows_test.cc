#include "kernels/few_rows.h"

#include <algorithm>

#include "kernels/vector/tables.h"
#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

constexpr double kSlack = 5e-5;  // Of float sums of 300 terms.

// A linear layer's operands, what lies between the rows of those with strides included.
struct Layer {
  Layer(std::int64_t tokens, std::int64_t outputs, std::int64_t inputs)
      : rows(tokens),
        n(outputs),
        k(inputs),
        x(random_values<float>(rows * k, 1)),
        w(random_values<float>(n * w_stride(), 2)),
        dy(random_values<float>(rows * dy_stride(), 3)) {}
  std::int64_t w_stride() const { return k + 5; }
  std::int64_t dy_stride() const { return n + 4; }
  // Rows of n elements of dy, and of k of w.
  std::vector<float> dense(const std::vector<float>& from, std::int64_t count, std::int64_t cols,
                           std::int64_t stride) const {
    std::vector<float> to;
    for (std::int64_t row = 0; row < count; ++row) {
      to.insert(to.end(), from.begin() + row * stride, from.begin() + row * stride + cols);
    }
    return to;
  }
  std::vector<float> dense_w() const { return dense(w, n, k, w_stride()); }
  std::vector<float> dense_dy() const { return dense(dy, rows, n, dy_stride()); }

  std::int64_t rows, n, k;
  std::vector<float> x, w, dy;
};

// out[i, j] = start + Σ left(i, c)·right(j, c), rows `stride` apart and 7 between them.
template <class Left, class Right>
std::vector<double> product(std::int64_t rows, std::int64_t cols, std::int64_t depth,
                            std::int64_t stride, double start, Left left, Right right) {
  std::vector<double> out(static_cast<std::size_t>(rows * stride), 7.0);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      double& sum = out[static_cast<std::size_t>(i * stride + j)] = start;
      for (std::int64_t c = 0; c < depth; ++c) sum += double{left(i, c)} * double{right(j, c)};
    }
  }
  return out;
}

void expect_products(const Layer& l) {
  const std::int64_t rows = l.rows, n = l.n, k = l.k, y_stride = n + 3, dx_stride = k + 2;
  const auto x = [&](std::int64_t i, std::int64_t c) { return l.x[i * k + c]; };
  const auto w = [&](std::int64_t i, std::int64_t c) { return l.w[i * l.w_stride() + c]; };
  const auto dy = [&](std::int64_t i, std::int64_t c) { return l.dy[i * l.dy_stride() + c]; };
  const auto turned = [](auto f) {
    return [=](std::int64_t i, std::int64_t c) { return f(c, i); };
  };

  std::vector<float> y(rows * y_stride, 7.0f);
  few_rows_forward(l.x.data(), l.dense_w().data(), rows, n, k, y.data(), y_stride);
  expect_near(y, product(rows, n, k, y_stride, 0, x, w), kSlack, "y");

  std::vector<float> dx(rows * dx_stride, 7.0f);
  few_rows_input_gradient(l.dense_dy().data(), l.w.data(), l.w_stride(), rows, n, k, dx.data(),
                          dx_stride);
  expect_near(dx, product(rows, k, n, dx_stride, 0, dy, turned(w)), kSlack, "dx");

  for (const bool accumulate : {false, true}) {
    std::vector<float> dw(n * k, 7.0f);
    few_rows_weight_gradient(l.dy.data(), l.dy_stride(), l.x.data(), rows, n, k, dw.data(),
                             accumulate);
    expect_near(dw, product(n, k, rows, k, accumulate ? 7 : 0, turned(dy), turned(x)), kSlack,
                "dw");
  }
}

// Sizes around panels, blocks of weights and depths; what lies between rows is left alone.
TEST(FewRows, ProductsMatchTheFormula) {
  for (std::int64_t rows : {0, 1, 5, 16, 33, 70, 300}) {
    for (std::int64_t n : {1, 7, 47, 48, 100, 300}) {
      for (std::int64_t k : {1, 30, 64, 256, 300}) {
        SCOPED_TRACE(testing::Message() << rows << " rows, " << k << " to " << n);
        expect_products(Layer(rows, n, k));
      }
    }
  }
}

TEST(FewRows, OfNothingAreZeros) {
  std::vector<float> y(2 * 5, 7.0f);
  const std::vector<float> expected{0, 0, 0, 7, 7, 0, 0, 0, 7, 7};
  few_rows_forward(nullptr, nullptr, 2, 3, 0, y.data(), 5);
  EXPECT_EQ(y, expected);
  std::vector<float> dx(2 * 5, 7.0f);
  few_rows_input_gradient(nullptr, nullptr, 3, 2, 0, 3, dx.data(), 5);
  EXPECT_EQ(dx, expected);
}

TEST(FewRows, CapabilitiesAgree) {
  const Layer l(37, 59, 300);
  const auto w = l.dense_w(), dy = l.dense_dy();
  std::vector<double> expected_y, expected_dx, expected_dw;
  for (Capability c : {Capability::kDefault, Capability::kAvx2, Capability::kAvx512}) {
    if (tables_of(c) == nullptr) continue;
    const FewRowsTable& table = tables_of(c)->few_rows;
    const auto scratch = [&](FewRowsTable::Size size) {
      return std::vector<float>(size(l.rows, l.n, l.k));
    };
    std::vector<float> y(l.rows * l.n), dx(l.rows * l.k), dw(l.n * l.k);
    table.forward(l.x.data(), w.data(), l.rows, l.n, l.k, y.data(), l.n,
                  scratch(table.forward_scratch).data());
    table.input_gradient(dy.data(), w.data(), l.k, l.rows, l.n, l.k, dx.data(), l.k,
                         scratch(table.input_gradient_scratch).data());
    table.weight_gradient(dy.data(), l.n, l.x.data(), l.rows, l.n, l.k, dw.data(), false,
                          scratch(table.weight_gradient_scratch).data());
    if (expected_y.empty()) {
      expected_y.assign(y.begin(), y.end());
      expected_dx.assign(dx.begin(), dx.end());
      expected_dw.assign(dw.begin(), dw.end());
    }
    expect_near(y, expected_y, kSlack, "y");
    expect_near(dx, expected_dx, kSlack, "dx");
    expect_near(dw, expected_dw, kSlack, "dw");
  }
}

}  // namespace
}  // namespace fourfold::kernels
