// The head and its loss over the vocabulary, in both layouts, tied and not, on awkward grids of
// thread ranks against plain LibTorch with autograd on one rank.
#include "parallel/vocab_loss.h"

#include "tests/threads/layer_oracle.h"

namespace fourfold::testing {
namespace {

struct HeadCase {
  HeadLayout layout;
  bool tied;
  std::int64_t rows, vocab, hidden;
  double spread = 1;    ///< Of the hidden states.
  bool is_cut = false;  ///< The residual stream over x.
};

TensorLayout head_weight(const HeadCase& c) {
  if (!c.tied && c.layout == HeadLayout::kGatherHidden) {
    return {{c.vocab, c.hidden}, {{{Axis::kX, Axis::kY}, 0}, {{}, 0}}};
  }
  return {{c.vocab, c.hidden}, {{{Axis::kX}, 0}, {{Axis::kY}, 0}}};
}

void check_head(const GridShape& shape, const HeadCase& c) {
  constexpr float kScale = 0.37f;
  torch::manual_seed(10);
  Weights weights;
  const at::Tensor table = weights.add("head.weight", {c.vocab, c.hidden});
  const at::Tensor hidden = (torch::randn({c.rows, c.hidden}) * c.spread).requires_grad_();
  const double tolerance = 1e-5 * c.spread;
  const at::Tensor targets = torch::randint(c.vocab, {c.rows}, torch::kLong);
  for (std::int64_t r = 2; r < c.rows; r += 5) targets[r] = -1;
  const at::Tensor logits = torch::matmul(hidden, table.t());
  const at::Tensor loss = torch::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, -1);
  (loss * kScale).backward();
  Collected d_hidden(shape_of(hidden)), all_logits(shape_of(logits));
  std::mutex mutex;
  std::map<std::int64_t, double> sums;  // By the first row of each (z, data).
  on_ranks(shape, [&](const ParallelContext& context) {
    ParameterSpec parameter;
    parameter.name = "head.weight";
    parameter.layout = head_weight(c);
    WeightBlock block(context, {parameter});
    weights.load(block);
    VocabLoss head(context, block, c.layout, c.tied, StreamRows(context, c.is_cut));
    const Range rows = rows_of_rank(context, c.rows);
    const Range columns = share(context, c.hidden, {Axis::kY});
    const Region mine{{stream_rows(context, rows, c.is_cut), columns}};
    const at::Tensor in = cut(hidden.detach(), mine), target = cut(targets, {{rows}});
    all_logits.add({{rows, head.vocabulary()}},
                   head.logits(cut(hidden.detach(), {{rows, columns}})));
    for (int i = 0; i < kBackwards; ++i) {
      const VocabLoss::Result r = run_to_end(head.forward_backward(in, target, kScale));
      d_hidden.add(mine, r.d_hidden);
      EXPECT_EQ(r.loss_sum, run_to_end(head.forward(in, target)));
      const std::lock_guard lock(mutex);
      const double known = sums.try_emplace(rows.begin, r.loss_sum).first->second;
      EXPECT_EQ(known, r.loss_sum) << "ranks of one row differ";
    }
    weights.collect(context, block);
  });
  double total = 0;
  for (const auto& [row, sum] : sums) total += sum;
  EXPECT_NEAR(total, loss.item<double>(), 1e-5 * loss.item<double>());
  EXPECT_EQ(sums.size(), static_cast<std::size_t>(shape.z) * shape.data);
  all_logits.expect_near(logits.detach(), "logits");
  // A sum over the vocabulary, whose order is each product library's own.
  const double terms = std::max(1.0, std::sqrt(static_cast<double>(c.vocab)) / 100);
  d_hidden.expect_near(hidden.grad(), "gradient of the hidden states", tolerance * terms);
  weights.expect_gradients(tolerance);
}

class Heads : public ::testing::TestWithParam<std::tuple<HeadLayout, bool>> {};

TEST_P(Heads, MatchTheOracle) {
  const auto [layout, tied] = GetParam();
  for (const GridShape& grid : grids()) check_head(grid, {layout, tied, 19, 43, 17});
}

TEST_P(Heads, AfterACutStream) {
  const auto [layout, tied] = GetParam();
  for (const GridShape& grid : grids()) check_head(grid, {layout, tied, 19, 43, 17, 1, true});
}

TEST_P(Heads, WhoseExponentialsWouldOverflow) {
  const auto [layout, tied] = GetParam();
  for (const GridShape& grid : grids()) check_head(grid, {layout, tied, 19, 43, 17, 60});
}

TEST_P(Heads, InSeveralChunksOfRows) {
  // More logits than one chunk holds: 83 rows of a vocabulary that is whole, 167 of a halved one.
  const auto [layout, tied] = GetParam();
  if (layout == HeadLayout::kGatherHidden) {
    check_head({1, 2, 1, 1}, {layout, tied, 171, 300007, 3});
  } else {
    check_head({1, 1, 2, 1}, {layout, tied, 181, 300007, 3});
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Heads,
                         ::testing::Combine(::testing::Values(HeadLayout::kReduceLogits,
                                                              HeadLayout::kGatherHidden),
                                            ::testing::Bool()));

}  // namespace
}  // namespace fourfold::testing
