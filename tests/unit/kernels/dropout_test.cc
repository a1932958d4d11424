#include "kernels/dropout.h"

#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

// The mask as the header states it.
bool kept(const DropoutSpec& spec, std::int64_t row, std::int64_t col) {
  const std::int64_t r = spec.row0 + row;
  const auto global = static_cast<std::uint64_t>(
      spec.samples != nullptr ? spec.samples[r / spec.seq] * spec.seq + r % spec.seq : r);
  const auto column = static_cast<std::uint32_t>(spec.col0 + col);
  const PhiloxCounter words = philox4x32(
      {static_cast<std::uint32_t>(global),
       static_cast<std::uint32_t>(global >> 32) ^ spec.layer << 16, column / 4, spec.step},
      spec.key);
  return words[column % 4] >= static_cast<std::uint32_t>(spec.p * 0x1p32);
}

template <class T>
class DropoutTest : public ::testing::Test {};
TYPED_TEST_SUITE(DropoutTest, ElementTypes);

TYPED_TEST(DropoutTest, MasksAsStatedWithBiasAndResidual) {
  using T = TypeParam;
  const std::vector<std::int64_t> samples{5, 1LL << 33, 2};
  for (std::int64_t cols : {1, 17, 64, 300}) {
    const std::int64_t rows = 7;
    DropoutSpec spec{.p = 0.25f, .key = {3, 9}, .step = 11, .layer = 6};
    spec.samples = samples.data();
    spec.seq = 4;
    spec.row0 = 2;
    spec.col0 = 29;
    const auto in = random_values<T>(rows * cols, 1), residual = random_values<T>(rows * cols, 2);
    const auto bias = random_values<float>(cols, 3);
    std::vector<T> out(in.size()), din(in.size());
    std::vector<float> dbias(cols, 1.0f);
    residual_dropout_forward(in.data(), bias.data(), residual.data(), out.data(), rows, cols, spec);
    residual_dropout_backward(in.data(), din.data(), dbias.data(), rows, cols, spec);
    std::vector<double> out_ref, din_ref, dbias_ref(cols, 1.0);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < cols; ++c) {
        const double factor = kept(spec, r, c) ? 1 / 0.75 : 0;
        const double v = value_of(in[r * cols + c]);
        out_ref.push_back(value_of(residual[r * cols + c]) + (v + bias[c]) * factor);
        din_ref.push_back(v * factor);
        dbias_ref[c] += v * factor;
      }
    }
    expect_near(out, out_ref, kTolerance<T>, "out");
    expect_near(din, din_ref, kTolerance<T>, "din");
    expect_near(dbias, dbias_ref, 1e-5, "dbias");
  }
}

TYPED_TEST(DropoutTest, ZeroIsAPlainSumAndEveryPartIsOptional) {
  using T = TypeParam;
  const auto in = random_values<T>(3 * 19, 1), residual = random_values<T>(3 * 19, 2);
  std::vector<T> out(in.size()), din(in.size());
  residual_dropout_forward<T>(in.data(), nullptr, nullptr, out.data(), 3, 19, {});
  EXPECT_TRUE(same_bits(out, in));
  residual_dropout_forward<T>(in.data(), nullptr, residual.data(), out.data(), 3, 19, {});
  std::vector<double> sum;
  for (std::size_t i = 0; i < in.size(); ++i)
    sum.push_back(value_of(in[i]) + value_of(residual[i]));
  expect_near(out, sum, kTolerance<T>, "sum");
  residual_dropout_backward<T>(in.data(), din.data(), nullptr, 3, 19, {});
  EXPECT_TRUE(same_bits(din, in));
}

// A quarter of a large tensor goes, and two steps, layers or keys share no more than chance.
TEST(Dropout, RateAndIndependence) {
  const std::int64_t rows = 500, cols = 400;
  const std::vector<float> ones(rows * cols, 1.0f);
  auto mask = [&](DropoutSpec spec) {
    spec.p = 0.25f;
    std::vector<float> out(ones.size());
    residual_dropout_forward<float>(ones.data(), nullptr, nullptr, out.data(), rows, cols, spec);
    return out;
  };
  const auto base = mask({.key = {1, 2}, .step = 1, .layer = 1});
  for (const auto& other :
       {mask({.key = {1, 2}, .step = 2, .layer = 1}), mask({.key = {1, 2}, .step = 1, .layer = 2}),
        mask({.key = {1, 3}, .step = 1, .layer = 1})}) {
    double dropped = 0, both = 0;
    for (std::size_t i = 0; i < base.size(); ++i) {
      dropped += base[i] == 0;
      both += base[i] == 0 && other[i] == 0;
    }
    const auto n = static_cast<double>(base.size());
    EXPECT_NEAR(dropped / n, 0.25, 0.005);
    EXPECT_NEAR(both / n, 0.0625, 0.003);
  }
}

}  // namespace
}  // namespace fourfold::kernels
