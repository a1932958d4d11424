#include "kernels/activation.h"

#include "device/intra_op_threads.h"
#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double gelu_slope(double x) {
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), t = std::tanh(u);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

template <class T>
class ActivationTest : public ::testing::Test {};
TYPED_TEST_SUITE(ActivationTest, ElementTypes);

TYPED_TEST(ActivationTest, GeluMatchesTheFormulas) {
  using T = TypeParam;
  const std::int64_t rows = 9;
  for (std::int64_t cols : kAwkward) {
    for (bool biased : {false, true}) {
      const auto x = random_values<T>(rows * cols, 1, 3.0f), dy = random_values<T>(rows * cols, 2);
      const auto bias = random_values<float>(cols, 3);
      const float* bias_or_null = biased ? bias.data() : nullptr;
      std::vector<T> y(x.size()), dx(x.size());
      std::vector<float> dbias(cols, 2.0f);
      bias_gelu_forward(x.data(), bias_or_null, rows, cols, y.data());
      bias_gelu_backward(dy.data(), x.data(), bias_or_null, rows, cols, dx.data(), dbias.data());
      std::vector<double> y_ref, dx_ref, dbias_ref(cols, 2.0);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double v = value_of(x[i]) + (biased ? bias[i % cols] : 0);
        y_ref.push_back(gelu(v));
        dx_ref.push_back(value_of(dy[i]) * gelu_slope(v));
        dbias_ref[i % cols] += dx_ref.back();
      }
      expect_near(y, y_ref, kTolerance<T>, "gelu");
      expect_near(dx, dx_ref, kTolerance<T>, "dx");
      expect_near(dbias, dbias_ref, 2e-5, "dbias");
    }
  }
}

TYPED_TEST(ActivationTest, SwigluMatchesTheFormulas) {
  using T = TypeParam;
  const std::int64_t rows = 4;
  for (std::int64_t width : kAwkward) {
    const auto in = random_values<T>(rows * 2 * width, 1, 3.0f);
    const auto dout = random_values<T>(rows * width, 2);
    std::vector<T> out(dout.size()), din(in.size());
    swiglu_forward(in.data(), rows, width, out.data());
    swiglu_backward(dout.data(), in.data(), rows, width, din.data());
    std::vector<double> out_ref, din_ref(in.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t i = 0; i < width; ++i) {
        const double g = value_of(in[r * 2 * width + i]),
                     u = value_of(in[r * 2 * width + width + i]);
        const double s = sigmoid(g), d = value_of(dout[r * width + i]);
        out_ref.push_back(g * s * u);
        din_ref[r * 2 * width + i] = d * u * s * (1 + g * (1 - s));
        din_ref[r * 2 * width + width + i] = d * g * s;
      }
    }
    expect_near(out, out_ref, kTolerance<T>, "out");
    expect_near(din, din_ref, kTolerance<T>, "din");
    auto in_place = in;
    swiglu_backward(dout.data(), in_place.data(), rows, width, in_place.data());
    EXPECT_TRUE(same_bits(in_place, din));
  }
}

// What experts need: rows weighed, and the gradients of the weights.
TYPED_TEST(ActivationTest, ScaledGeluMatchesTheFormulas) {
  using T = TypeParam;
  const std::int64_t rows = 9;
  for (std::int64_t cols : kAwkward) {
    for (bool biased : {false, true}) {
      const auto x = random_values<T>(rows * cols, 1, 3.0f), dy = random_values<T>(rows * cols, 2);
      const auto bias = random_values<float>(cols, 3), scale = random_values<float>(rows, 4);
      const float* bias_or_null = biased ? bias.data() : nullptr;
      std::vector<T> y(x.size());
      std::vector<float> dbias(cols, 2.0f), dscale(rows, 7.0f);
      bias_gelu_forward(x.data(), bias_or_null, rows, cols, y.data(), scale.data());
      std::vector<T> dx = dy;  // In place of dy.
      bias_gelu_backward(dx.data(), x.data(), bias_or_null, rows, cols, dx.data(), dbias.data(),
                         scale.data(), dscale.data());
      std::vector<double> y_ref, dx_ref, dbias_ref(cols, 2.0), dscale_ref(rows);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double v = value_of(x[i]) + (biased ? bias[i % cols] : 0);
        const double w = scale[i / cols], d = value_of(dy[i]);
        y_ref.push_back(w * gelu(v));
        dx_ref.push_back(w * d * gelu_slope(v));
        dbias_ref[i % cols] += dx_ref.back();
        dscale_ref[i / cols] += d * gelu(v);
      }
      expect_near(y, y_ref, kTolerance<T>, "gelu");
      expect_near(dx, dx_ref, kTolerance<T>, "dx");
      expect_near(dbias, dbias_ref, 2e-5, "dbias");
      expect_near(dscale, dscale_ref, 2e-5, "dscale");
    }
  }
}

TYPED_TEST(ActivationTest, ScaledSwigluMatchesTheFormulas) {
  using T = TypeParam;
  const std::int64_t rows = 4;
  for (std::int64_t width : kAwkward) {
    const auto in = random_values<T>(rows * 2 * width, 1, 3.0f);
    const auto dout = random_values<T>(rows * width, 2);
    const auto scale = random_values<float>(rows, 3);
    std::vector<T> out(dout.size()), din = in;
    std::vector<float> dscale(rows, 7.0f);
    swiglu_forward(in.data(), rows, width, out.data(), scale.data());
    swiglu_backward(dout.data(), din.data(), rows, width, din.data(), scale.data(), dscale.data());
    std::vector<double> out_ref, din_ref(in.size()), dscale_ref(rows);
    for (std::int64_t i = 0; i < rows * width; ++i) {
      const std::int64_t row = i / width, gate = row * 2 * width + i % width;
      const double g = value_of(in[gate]), u = value_of(in[gate + width]), s = sigmoid(g);
      const double w = scale[row], d = value_of(dout[i]);
      out_ref.push_back(w * g * s * u);
      din_ref[gate] = w * d * u * s * (1 + g * (1 - s));
      din_ref[gate + width] = w * d * g * s;
      dscale_ref[row] += d * g * s * u;
    }
    expect_near(out, out_ref, kTolerance<T>, "out");
    expect_near(din, din_ref, kTolerance<T>, "din");
    expect_near(dscale, dscale_ref, 2e-5, "dscale");
  }
}

// Enough rows for threads: no row's result depends on how rows are spread.
TYPED_TEST(ActivationTest, ScaledBitsDontDependOnTheThreads) {
  using T = TypeParam;
  const std::int64_t rows = 301, width = 130;
  const auto in = random_values<T>(rows * 2 * width, 1), dout = random_values<T>(rows * width, 2);
  const auto scale = random_values<float>(rows, 3);
  const int threads = intra_op_threads();
  std::vector<T> out[2], din[2];
  std::vector<float> dscale[2];
  for (int i : {0, 1}) {
    set_intra_op_threads(1 + 2 * i);
    out[i].resize(dout.size()), din[i].resize(in.size()), dscale[i].resize(rows);
    swiglu_forward(in.data(), rows, width, out[i].data(), scale.data());
    swiglu_backward(dout.data(), in.data(), rows, width, din[i].data(), scale.data(),
                    dscale[i].data());
  }
  set_intra_op_threads(threads);
  EXPECT_TRUE(same_bits(out[0], out[1]));
  EXPECT_TRUE(same_bits(din[0], din[1]));
  EXPECT_TRUE(same_bits(dscale[0], dscale[1]));
}

TYPED_TEST(ActivationTest, ExtremesAreFiniteAndNansStay) {
  using T = TypeParam;
  const std::vector<float> values{-1e4f, -100.0f, -88.0f, 0.0f, 88.0f, 1e4f};
  std::vector<T> x, dy(values.size(), T(1.0f)), y(values.size()), dx(values.size());
  for (float v : values) x.push_back(T(v));
  const auto n = static_cast<std::int64_t>(values.size());
  bias_gelu_forward<T>(x.data(), nullptr, 1, n, y.data());
  bias_gelu_backward<T>(dy.data(), x.data(), nullptr, 1, n, dx.data(), nullptr);
  expect_near(y, {0, 0, 0, 0, value_of(x[4]), value_of(x[5])}, 1e-6, "y");
  expect_near(dx, {0, 0, 0, 0.5, 1, 1}, 1e-6, "dx");
  x[2] = T(std::nanf(""));
  bias_gelu_forward<T>(x.data(), nullptr, 1, n, y.data());
  EXPECT_TRUE(std::isnan(value_of(y[2])));
}

// The bits of an element depend on neither its place nor the length of its row.
TYPED_TEST(ActivationTest, BitsDontDependOnThePlace) {
  using T = TypeParam;
  const auto x = random_values<T>(130, 1);
  std::vector<T> whole(130), part(130);
  bias_gelu_forward<T>(x.data(), nullptr, 1, 130, whole.data());
  for (std::int64_t begin : {1, 5, 17, 64, 129}) {
    bias_gelu_forward<T>(x.data() + begin, nullptr, 1, 130 - begin, part.data());
    for (std::int64_t i = begin; i < 130; ++i) {
      ASSERT_EQ(value_of(whole[i]), value_of(part[i - begin])) << i << " from " << begin;
    }
  }
}

}  // namespace
}  // namespace fourfold::kernels
