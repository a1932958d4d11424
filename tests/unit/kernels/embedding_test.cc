#include "kernels/embedding.h"

#include "tests/unit/kernels/oracle.h"

namespace fourfold::kernels {
namespace {

template <class T>
class EmbeddingTest : public ::testing::Test {};
TYPED_TEST_SUITE(EmbeddingTest, ElementTypes);

TYPED_TEST(EmbeddingTest, ShardHoldsItsTokensOnly) {
  using T = TypeParam;
  const std::int64_t begin = 10, vocab = 6, rows = 9;
  const std::vector<std::int64_t> tokens{10, 15, 9, 16, 12, 12, 0, 15, 12};
  for (std::int64_t cols : {1, 17, 64, 4000}) {
    const auto table = random_values<T>(vocab * cols, 1), dout = random_values<T>(rows * cols, 2);
    std::vector<T> out(rows * cols, T(7.0f));
    std::vector<float> grad(vocab * cols, 0.5f);
    embedding_forward(tokens.data(), table.data(), begin, vocab, rows, cols, out.data());
    embedding_backward(tokens.data(), dout.data(), begin, vocab, rows, cols, grad.data());
    std::vector<double> out_ref(rows * cols, 0.0), grad_ref(vocab * cols, 0.5);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t local = tokens[r] - begin;
      if (local < 0 || local >= vocab) continue;
      for (std::int64_t c = 0; c < cols; ++c) {
        out_ref[r * cols + c] = value_of(table[local * cols + c]);
        grad_ref[local * cols + c] += value_of(dout[r * cols + c]);
      }
    }
    expect_near(out, out_ref, 0, "out");
    expect_near(grad, grad_ref, 1e-6, "grad");
  }
}

TYPED_TEST(EmbeddingTest, PositionsRepeatPerSequence) {
  using T = TypeParam;
  const std::int64_t seq = 3, first = 2, cols = 19;
  for (std::int64_t rows : {2, 3, 8}) {
    const auto table = random_values<T>((first + seq) * cols, 1);
    const auto before = random_values<T>(rows * cols, 2);
    auto out = before;
    std::vector<float> grad((first + seq) * cols, 0.5f);
    // In two parts, the second from the middle of a sequence on.
    position_forward(table.data(), seq, first, 0, 1, cols, out.data());
    position_forward(table.data(), seq, first, 1, rows - 1, cols, out.data() + cols);
    position_backward(before.data(), seq, first, rows, cols, grad.data());
    std::vector<double> out_ref, grad_ref(grad.size(), 0.5);
    for (std::int64_t i = 0; i < rows * cols; ++i) {
      const std::int64_t at = (first + i / cols % seq) * cols + i % cols;
      out_ref.push_back(value_of(before[i]) + value_of(table[at]));
      grad_ref[at] += value_of(before[i]);
    }
    expect_near(out, out_ref, kTolerance<T>, "out");
    expect_near(grad, grad_ref, 1e-6, "grad");
  }
}

}  // namespace
}  // namespace fourfold::kernels
