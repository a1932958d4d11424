// Each 4D layer on awkward grids of thread ranks against plain LibTorch with autograd on one rank:
// outputs, gradients of inputs, gradients of weights gathered by their regions.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "comm/thread_world.h"
#include "device/intra_op_threads.h"
#include "device/tensors.h"
#include "parallel/embedding.h"
#include "parallel/gradient_sync.h"
#include "parallel/linear.h"
#include "parallel/norm.h"
#include "parallel/vocab_loss.h"

namespace fourfold {
namespace {

constexpr int kBackwards = 2;  // Gradients of micro-batches are added up.

const std::vector<GridShape>& grids() {
  static const std::vector<GridShape> kGrids{{1, 1, 1, 1}, {3, 2, 1, 1}, {1, 3, 2, 1},
                                             {2, 2, 2, 1}, {1, 2, 1, 3}, {2, 1, 3, 1}};
  return kGrids;
}

/// A whole tensor put together from what the ranks hold. Ranks that hold the same elements must
/// hold the same bits.
class Collected {
 public:
  explicit Collected(std::vector<std::int64_t> shape)
      : box_(Region::whole(shape)), whole_(torch::zeros(shape)), times_(torch::zeros(shape)) {}

  void add(const Region& region, const at::Tensor& held) {
    const at::Tensor part = held.reshape(region.shape()).contiguous();
    const std::lock_guard lock(mutex_);
    if (region.empty()) return;
    at::Tensor known = torch::empty_like(part), times = torch::empty_like(part);
    copy_region(region, box_, whole_.data_ptr(), region, known.data_ptr(), sizeof(float));
    copy_region(region, box_, times_.data_ptr(), region, times.data_ptr(), sizeof(float));
    EXPECT_TRUE(torch::where(times > 0, known == part, times == 0).all().item<bool>())
        << "replicas of " << region.name() << " differ";
    times += 1;
    copy_region(region, region, part.data_ptr(), box_, whole_.data_ptr(), sizeof(float));
    copy_region(region, region, times.data_ptr(), box_, times_.data_ptr(), sizeof(float));
  }

  void expect_near(const at::Tensor& expected, const std::string& what) const {
    EXPECT_TRUE((times_ > 0).all().item<bool>()) << what << ": some elements are with nobody";
    const double off = (whole_ - expected).abs().max().item<double>();
    const double size = expected.abs().max().item<double>();
    EXPECT_GT(size, 0) << what;
    EXPECT_LT(off, 1e-5 * std::max(size, 1.0)) << what;
  }

 private:
  std::mutex mutex_;
  Region box_;
  at::Tensor whole_, times_;
};

/// The part of a whole tensor that lies in a region, dense.
at::Tensor cut(const at::Tensor& whole, const Region& region) {
  at::Tensor part = whole;
  for (std::size_t d = 0; d < region.dims.size(); ++d) {
    part = part.narrow(static_cast<std::int64_t>(d), region.dims[d].begin, region.dims[d].size());
  }
  return part.contiguous();
}

/// The range of [0, size) that the rank has of a dim cut over `axes`.
Range share(const ParallelContext& context, std::int64_t size, AxisSet axes) {
  const Grid& grid = context.grid.grid();
  return split_range(size, grid.group_size(axes), grid.group_rank(context.coords(), axes));
}

/// Rows belong to (z, data).
Range rows_of_rank(const ParallelContext& context, std::int64_t rows) {
  return share(context, rows, {Axis::kZ, Axis::kData});
}

void on_ranks(const GridShape& shape, const std::function<void(const ParallelContext&)>& body) {
  SCOPED_TRACE("grid " + shape.name());
  run_thread_ranks(shape.size(), {}, [&](Communicator& world) {
    set_intra_op_threads(1);
    const c10::InferenceMode no_autograd;
    ProcessGrid grid(Grid(shape), world);
    body(ParallelContext{grid, DType::kF32, true, 7});
  });
}

/// The oracle's leaves by the parameters' names; gradients come back by the same names.
class Weights {
 public:
  at::Tensor add(const std::string& name, std::vector<std::int64_t> shape) {
    at::Tensor leaf = torch::randn(shape).mul_(0.5).requires_grad_();
    leaves_[name] = leaf;
    gradients_.try_emplace(name, shape);
    return leaf;
  }
  /// Gives a rank its part of the values.
  void load(ParameterGroup& group) {
    for (Parameter& p : group.parameters()) {
      p.weight.copy_(cut(value(p.spec.name), p.stored).view(p.weight.sizes()));
    }
  }
  /// Sums a rank's gradients over data and takes them.
  void collect(const ParallelContext& context, ParameterGroup& group) {
    for (Parameter& p : group.parameters()) {
      Parameter* one[] = {&p};
      sum_gradients(context, one);
      gradients_.at(p.spec.name).add(p.updated, p.updated_gradient());
    }
  }
  void expect_gradients() const {
    for (const auto& [name, gradient] : gradients_) {
      gradient.expect_near(leaves_.at(name).grad() * kBackwards, "gradient of " + name);
    }
  }
  at::Tensor value(const std::string& name) const { return leaves_.at(name).detach(); }

 private:
  std::map<std::string, at::Tensor> leaves_;
  std::map<std::string, Collected> gradients_;
};

std::vector<std::int64_t> shape_of(const at::Tensor& tensor) { return tensor.sizes().vec(); }

// --- Linear4D

/// Where a member's columns lie, and how many ranks share them.
struct MemberColumns {
  Range columns;
  int sharers = 1;
  int index = 0;  ///< Of this rank among the sharers.
};

MemberColumns columns_of(const ParallelContext& context, const LinearSpec& spec,
                         const LinearMember& member) {
  const Axis axis = output_axis(spec.orientation);
  const int ranks = context.size(axis), parts = member.parts == 0 ? ranks : member.parts;
  const int at = context.coords()[axis], sharers = ranks / parts;
  return {split_range(member.out, parts, at / sharers), sharers, at % sharers};
}

/// What a sharer's gradient counts: they differ, and together count 1.
double part_of_sharer(const MemberColumns& m) {
  return 2.0 * (m.index + 1) / (m.sharers * (m.sharers + 1));
}

void check_linear(const GridShape& shape, const LinearSpec& spec) {
  constexpr std::int64_t kRows = 13;
  torch::manual_seed(5);
  Weights weights;
  const at::Tensor input = torch::randn({kRows, spec.in}).requires_grad_();
  std::vector<at::Tensor> outputs, d_outputs;
  std::map<std::string, Collected> collected;
  for (const LinearMember& m : spec.members) {
    outputs.push_back(torch::matmul(input, weights.add(m.name + ".weight", {m.out, spec.in}).t()));
    d_outputs.push_back(torch::randn({kRows, m.out}));
    collected.try_emplace(m.name, shape_of(outputs.back()));
    outputs.back().backward(d_outputs.back());
  }
  Collected d_input(shape_of(input));
  on_ranks(shape, [&](const ParallelContext& context) {
    Linear4D layer(context, spec);
    EXPECT_EQ(layer.bias() != nullptr, spec.bias);
    weights.load(layer.weights());
    const Range rows = rows_of_rank(context, kRows);
    const Region in{{rows, share(context, spec.in, {input_axis(spec.orientation)})}};
    const at::Tensor x = cut(input.detach(), in), y = layer.forward(x);
    std::vector<at::Tensor> parts;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < spec.members.size(); ++i) {
      const MemberColumns m = columns_of(context, spec, spec.members[i]);
      const Region out{{rows, m.columns}};
      collected.at(spec.members[i].name).add(out, y.narrow(1, begin, m.columns.size()));
      begin += m.columns.size();
      parts.push_back(cut(d_outputs[i], out) * part_of_sharer(m));
    }
    EXPECT_EQ(y.size(1), begin);
    const at::Tensor dy = torch::cat(parts, 1).contiguous();
    for (int i = 0; i < kBackwards; ++i) d_input.add(in, layer.backward(x, dy));
    weights.collect(context, layer.weights());
  });
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    collected.at(spec.members[i].name).expect_near(outputs[i].detach(), spec.members[i].name);
  }
  d_input.expect_near(input.grad(), "gradient of the input");
  weights.expect_gradients();
}

TEST(Layers4D, LinearNormal) {
  for (const GridShape& grid : grids()) {
    check_linear(grid, {.members = {{"up", 29, 0}}, .in = 17, .bias = true});
  }
}

TEST(Layers4D, LinearTransposed) {
  for (const GridShape& grid : grids()) {
    check_linear(grid,
                 {.members = {{"down", 17, 0}}, .in = 29, .orientation = Orientation::kTransposed});
  }
}

TEST(Layers4D, LinearOfSeveralMembers) {
  for (const GridShape& grid : grids()) {
    check_linear(grid, {.members = {{"gate", 23, 0}, {"up", 31, 0}}, .in = 19});
    check_linear(grid, {.members = {{"a", 5, 0}, {"b", 3, 0}, {"c", 11, 0}},
                        .in = 7,
                        .orientation = Orientation::kTransposed});
  }
}

TEST(Layers4D, LinearWhoseMembersAreSharedOverX) {
  for (const GridShape& grid : grids()) {
    check_linear(grid, {.members = {{"q", 18, 0}, {"k", 7, 1}, {"v", 7, 1}}, .in = 11});
  }
}

TEST(Layers4D, LinearWithFewerRowsThanRanks) {
  for (const GridShape& grid : grids()) {
    check_linear(grid, {.members = {{"narrow", 2, 0}}, .in = 2});
  }
}

/// The bias is the caller's: what is put into VectorBlock::gradient() arrives summed over z, data.
TEST(Layers4D, BiasGradientOfTheCaller) {
  for (const GridShape& shape : grids()) {
    for (const Orientation way : {Orientation::kNormal, Orientation::kTransposed}) {
      constexpr std::int64_t kRows = 13, kOut = 29;
      torch::manual_seed(6);
      Weights weights;
      const at::Tensor bias = weights.add("up.bias", {kOut});
      const at::Tensor dy = torch::randn({kRows, kOut});
      (torch::zeros({kRows, kOut}) + bias).backward(dy);
      Collected values({kOut});
      on_ranks(shape, [&](const ParallelContext& context) {
        Linear4D layer(context,
                       {.members = {{"up", kOut, 0}}, .in = 5, .orientation = way, .bias = true});
        weights.load(*layer.bias());
        layer.bias()->refresh();
        const Range out = share(context, kOut, {output_axis(way)});
        EXPECT_EQ(layer.bias()->rows(), out.size());
        const at::Tensor held = torch::empty({out.size()});
        std::copy_n(layer.bias()->values(), out.size(), held.data_ptr<float>());
        values.add({{out}}, held);
        const at::Tensor mine = cut(dy, {{rows_of_rank(context, kRows), out}}).sum(0);
        for (int i = 0; i < kBackwards; ++i) {
          for (std::int64_t c = 0; c < out.size(); ++c) {
            layer.bias()->gradient()[c] += mine.data_ptr<float>()[c];
          }
        }
        layer.bias()->finish_gradient();
        weights.collect(context, *layer.bias());
      });
      values.expect_near(bias.detach(), "values of the bias");
      weights.expect_gradients();
    }
  }
}

// --- Norm4D

at::Tensor norm_oracle(const at::Tensor& x, const NormSpec& spec, const at::Tensor& gain,
                       const at::Tensor& bias) {
  if (spec.centred) return torch::layer_norm(x, {spec.width}, gain, bias, spec.eps);
  return x * torch::rsqrt(x.square().mean(-1, true) + spec.eps) * gain;
}

void check_norm(const GridShape& shape, const NormSpec& spec, bool with_residual) {
  constexpr std::int64_t kRows = 11;
  torch::manual_seed(8);
  Weights weights;
  const at::Tensor x = (torch::randn({kRows, spec.width}) * 2 + 3).requires_grad_();
  const at::Tensor gain = weights.add("norm.weight", {spec.width});
  const at::Tensor bias = spec.bias ? weights.add("norm.bias", {spec.width}) : at::Tensor();
  const at::Tensor expected = norm_oracle(x, spec, gain, bias);
  const at::Tensor dy = torch::randn({kRows, spec.width}), bypass = torch::randn_like(dy);
  expected.backward(dy);
  Collected output(shape_of(x)), d_input(shape_of(x));
  on_ranks(shape, [&](const ParallelContext& context) {
    Norm4D layer(context, spec);
    weights.load(layer.parameters());
    layer.parameters().refresh();
    const Region mine{{rows_of_rank(context, kRows), share(context, spec.width, {Axis::kY})}};
    const at::Tensor in = cut(x.detach(), mine);
    Norm4D::Statistics statistics;
    output.add(mine, layer.forward(in, statistics));
    for (int i = 0; i < kBackwards; ++i) {
      d_input.add(mine, layer.backward(cut(dy, mine), in, statistics,
                                       with_residual ? cut(bypass, mine) : at::Tensor()));
    }
    layer.parameters().finish_gradient();
    weights.collect(context, layer.parameters());
  });
  output.expect_near(expected.detach(), "output");
  d_input.expect_near(with_residual ? x.grad() + bypass : x.grad(), "gradient of the input");
  weights.expect_gradients();
}

TEST(Layers4D, LayerNorm) {
  for (const GridShape& grid : grids()) {
    check_norm(grid, {.name = "norm", .width = 37}, true);
    check_norm(grid, {.name = "norm", .width = 37, .bias = false}, false);
  }
}

TEST(Layers4D, RmsNorm) {
  for (const GridShape& grid : grids()) {
    for (const bool with_residual : {true, false}) {
      check_norm(grid, {.name = "norm", .width = 37, .centred = false, .bias = false},
                 with_residual);
    }
  }
}

// --- Embedding4D

void check_embedding(const GridShape& shape, bool with_positions) {
  constexpr std::int64_t kSamples = 7, kSeq = 5, kVocab = 31, kHidden = 13, kPositions = 9;
  torch::manual_seed(9);
  Weights weights;
  const at::Tensor table = weights.add("tokens.weight", {kVocab, kHidden});
  const at::Tensor tokens = torch::randint(kVocab, {kSamples, kSeq}, torch::kLong);
  at::Tensor expected = torch::embedding(table, tokens), later = expected.detach().clone();
  if (with_positions) {
    const at::Tensor positions = weights.add("positions.weight", {kPositions, kHidden});
    expected = expected + positions.narrow(0, 0, kSeq);
    later += positions.detach().narrow(0, kPositions - kSeq, kSeq);
  }
  const at::Tensor dy = torch::randn({kSamples * kSeq, kHidden});
  expected.view({-1, kHidden}).backward(dy);
  EmbeddingSpec spec;
  spec.name = "tokens";
  spec.vocab = kVocab;
  spec.hidden = kHidden;
  if (with_positions) spec.position_name = "positions";
  spec.positions = kPositions;
  Collected output({kSamples * kSeq, kHidden}), shifted({kSamples * kSeq, kHidden});
  on_ranks(shape, [&](const ParallelContext& context) {
    Embedding4D layer(context, spec);
    weights.load(layer.table());
    EXPECT_EQ(layer.positions() != nullptr, with_positions);
    if (with_positions) weights.load(*layer.positions());
    const Range samples = rows_of_rank(context, kSamples);
    const Region mine{
        {{samples.begin * kSeq, samples.end * kSeq}, share(context, kHidden, {Axis::kY})}};
    const at::Tensor in = cut(tokens.view({-1}), {{mine.dims[0]}});
    output.add(mine, layer.forward(in, kSeq));
    shifted.add(mine, layer.forward(in, kSeq, kPositions - kSeq));
    for (int i = 0; i < kBackwards; ++i) layer.backward(in, kSeq, cut(dy, mine));
    weights.collect(context, layer.table());
    if (with_positions) weights.collect(context, *layer.positions());
  });
  output.expect_near(expected.detach().view({-1, kHidden}), "output");
  shifted.expect_near(later.view({-1, kHidden}), "output from a later position");
  weights.expect_gradients();
}

TEST(Layers4D, Embedding) {
  for (const GridShape& grid : grids()) {
    for (const bool with_positions : {true, false}) check_embedding(grid, with_positions);
  }
}

// --- VocabLoss

struct HeadCase {
  HeadLayout layout;
  bool tied;
  std::int64_t rows, vocab, hidden;
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
  const at::Tensor hidden = torch::randn({c.rows, c.hidden}).requires_grad_();
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
    VocabLoss head(context, block, c.layout, c.tied);
    const Range rows = rows_of_rank(context, c.rows);
    const Region mine{{rows, share(context, c.hidden, {Axis::kY})}};
    const at::Tensor in = cut(hidden.detach(), mine), target = cut(targets, {{rows}});
    all_logits.add({{rows, head.vocabulary()}}, head.logits(in));
    for (int i = 0; i < kBackwards; ++i) {
      const VocabLoss::Result r = head.forward_backward(in, target, kScale);
      d_hidden.add(mine, r.d_hidden);
      EXPECT_EQ(r.loss_sum, head.forward(in, target));
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
  d_hidden.expect_near(hidden.grad(), "gradient of the hidden states");
  weights.expect_gradients();
}

class Heads : public ::testing::TestWithParam<std::tuple<HeadLayout, bool>> {};

TEST_P(Heads, MatchTheOracle) {
  const auto [layout, tied] = GetParam();
  for (const GridShape& grid : grids()) check_head(grid, {layout, tied, 19, 43, 17});
}

TEST_P(Heads, InSeveralChunksOfRows) {
  // More logits than one chunk holds: 83 rows of a vocabulary that is whole, 167 of a halved one.
  const auto [layout, tied] = GetParam();
  const std::int64_t rows = layout == HeadLayout::kGatherHidden ? 171 : 97;
  check_head({1, 2, 1, 1}, {layout, tied, rows, 300007, 3});
}

INSTANTIATE_TEST_SUITE_P(Layouts, Heads,
                         ::testing::Combine(::testing::Values(HeadLayout::kReduceLogits,
                                                              HeadLayout::kGatherHidden),
                                            ::testing::Bool()));

}  // namespace
}  // namespace fourfold
