// Each 4D layer on awkward grids of thread ranks against plain LibTorch with autograd on one rank:
// outputs, gradients of inputs, gradients of weights gathered by their regions.
#include "parallel/embedding.h"
#include "parallel/linear.h"
#include "parallel/norm.h"
#include "tests/threads/layer_oracle.h"

namespace fourfold::testing {
namespace {

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
    const Range own = stream_rows(context, rows, spec.rows_over_x);
    const bool gives_own = spec.orientation == Orientation::kTransposed;
    const Range features = share(context, spec.in, {input_axis(spec.orientation)});
    const Region in{{gives_own ? rows : own, features}};
    const at::Tensor x = cut(input.detach(), {{rows, features}}), y = run_to_end(layer.forward(x));
    std::vector<at::Tensor> parts;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < spec.members.size(); ++i) {
      const MemberColumns m = columns_of(context, spec, spec.members[i]);
      const Region out{{gives_own ? own : rows, m.columns}};
      collected.at(spec.members[i].name).add(out, y.narrow(1, begin, m.columns.size()));
      begin += m.columns.size();
      parts.push_back(cut(d_outputs[i], out) * part_of_sharer(m));
    }
    EXPECT_EQ(y.size(1), begin);
    const at::Tensor dy = torch::cat(parts, 1).contiguous();
    for (int i = 0; i < kBackwards; ++i) {
      // Once with the whole input of forward, once with the rows that the rank keeps.
      const at::Tensor kept = i == 0 ? x : cut(input.detach(), in);
      d_input.add(in, run_to_end(layer.backward(kept, dy)));
    }
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

TEST(Layers4D, LinearsBesideACutStream) {
  for (const GridShape& grid : grids()) {
    check_linear(grid, {.members = {{"up", 29, 0}}, .in = 17, .bias = true, .rows_over_x = true});
    check_linear(grid, {.members = {{"q", 18, 0}, {"k", 7, 1}}, .in = 11, .rows_over_x = true});
    check_linear(grid, {.members = {{"down", 17, 0}},
                        .in = 29,
                        .orientation = Orientation::kTransposed,
                        .rows_over_x = true});
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

/// The bias is the caller's: what is put into VectorBlock::gradient() arrives summed over z, data,
/// and beside a cut stream over x.
TEST(Layers4D, BiasGradientOfTheCaller) {
  for (const GridShape& shape : grids()) {
    for (const auto& [way, is_cut] :
         {std::pair(Orientation::kNormal, false), std::pair(Orientation::kTransposed, false),
          std::pair(Orientation::kTransposed, true)}) {
      constexpr std::int64_t kRows = 13, kOut = 29;
      torch::manual_seed(6);
      Weights weights;
      const at::Tensor bias = weights.add("up.bias", {kOut});
      const at::Tensor dy = torch::randn({kRows, kOut});
      (torch::zeros({kRows, kOut}) + bias).backward(dy);
      Collected values({kOut});
      on_ranks(shape, [&](const ParallelContext& context) {
        Linear4D layer(context, {.members = {{"up", kOut, 0}},
                                 .in = 5,
                                 .orientation = way,
                                 .bias = true,
                                 .rows_over_x = is_cut});
        weights.load(*layer.bias());
        layer.bias()->refresh();
        const Range out = share(context, kOut, {output_axis(way)});
        EXPECT_EQ(layer.bias()->rows(), out.size());
        const at::Tensor held = torch::empty({out.size()});
        std::copy_n(layer.bias()->values(), out.size(), held.data_ptr<float>());
        values.add({{out}}, held);
        const Range rows = stream_rows(context, rows_of_rank(context, kRows), is_cut);
        const at::Tensor mine = cut(dy, {{rows, out}}).sum(0);
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
    const Range rows = stream_rows(context, rows_of_rank(context, kRows), spec.rows_over_x);
    const Region mine{{rows, share(context, spec.width, {Axis::kY})}};
    const at::Tensor in = cut(x.detach(), mine);
    Norm4D::Statistics statistics;
    output.add(mine, run_to_end(layer.forward(in, statistics)));
    for (int i = 0; i < kBackwards; ++i) {
      d_input.add(mine,
                  run_to_end(layer.backward(cut(dy, mine), in, statistics,
                                            with_residual ? cut(bypass, mine) : at::Tensor())));
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
    check_norm(grid, {.name = "norm", .width = 37, .rows_over_x = true}, true);
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

void check_embedding(const GridShape& shape, bool with_positions, bool is_cut) {
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
  spec.rows_over_x = is_cut;
  Collected output({kSamples * kSeq, kHidden}), shifted({kSamples * kSeq, kHidden});
  on_ranks(shape, [&](const ParallelContext& context) {
    Embedding4D layer(context, spec);
    weights.load(layer.table());
    EXPECT_EQ(layer.positions() != nullptr, with_positions);
    if (with_positions) weights.load(*layer.positions());
    const Range samples = rows_of_rank(context, kSamples);
    const Range rows{samples.begin * kSeq, samples.end * kSeq};
    const Region mine{{stream_rows(context, rows, is_cut), share(context, kHidden, {Axis::kY})}};
    const at::Tensor in = cut(tokens.view({-1}), {{rows}});
    output.add(mine, run_to_end(layer.forward(in, kSeq)));
    shifted.add(mine, run_to_end(layer.forward(in, kSeq, kPositions - kSeq)));
    for (int i = 0; i < kBackwards; ++i) {
      run_to_end(layer.backward(in, kSeq, cut(dy, mine)));
    }
    weights.collect(context, layer.table());
    if (with_positions) weights.collect(context, *layer.positions());
  });
  output.expect_near(expected.detach().view({-1, kHidden}), "output");
  shifted.expect_near(later.view({-1, kHidden}), "output from a later position");
  weights.expect_gradients();
}

TEST(Layers4D, Embedding) {
  for (const GridShape& grid : grids()) {
    for (const bool with_positions : {true, false}) {
      for (const bool is_cut : {true, false}) check_embedding(grid, with_positions, is_cut);
    }
  }
}

}  // namespace
}  // namespace fourfold::testing
