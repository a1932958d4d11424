#include "policy/parameter_layouts.h"

#include <fmt/core.h>

namespace fourfold {
namespace {

const DimSplit kOverX{{Axis::kX}, 0};
const DimSplit kOverY{{Axis::kY}, 0};
const DimSplit kWhole{{}, 0};

/// Collects parameters in the order in which the model makes them.
class Collector {
 public:
  Collector(const ModelSpec& model, const GridShape& grid) : model_(model), grid_(grid) {}

  void add(std::string name, std::vector<std::int64_t> shape, std::vector<DimSplit> dims) {
    list_.push_back({std::move(name), {std::move(shape), std::move(dims)}});
  }

  void norm(const std::string& name) {
    add(name + ".weight", {model_.hidden}, {kOverY});
    if (model_.norm == Norm::kLayerNorm && model_.bias) {
      add(name + ".bias", {model_.hidden}, {kOverY});
    }
  }

  void block(int index) {
    const std::string layer = fmt::format("model.layers.{}.", index);
    const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
    // Key/value heads that are fewer than the ranks of x are shared by neighbours.
    const DimSplit heads{{Axis::kX}, model_.kv_heads < grid_.x ? model_.kv_heads : 0};
    norm(layer + "input_layernorm");
    linear({{attention + "q_proj", model_.query_width(), kOverX},
            {attention + "k_proj", model_.kv_width(), heads},
            {attention + "v_proj", model_.kv_width(), heads}},
           model_.hidden, kOverY);
    linear({{attention + "o_proj", model_.hidden, kOverY}}, model_.query_width(), kOverX);
    norm(layer + "post_attention_layernorm");
    std::vector<Member> up;
    if (model_.gated()) up.push_back({mlp + "gate_proj", model_.ffn, kOverX});
    up.push_back({mlp + "up_proj", model_.ffn, kOverX});
    linear(up, model_.hidden, kOverY);
    linear({{mlp + "down_proj", model_.hidden, kOverY}}, model_.ffn, kOverX);
  }

  std::vector<ParameterLayout> take() { return std::move(list_); }

 private:
  struct Member {
    std::string name;
    std::int64_t out = 0;
    DimSplit split;
  };
  /// Linears with the same input: all weights, then all biases.
  void linear(const std::vector<Member>& members, std::int64_t in, const DimSplit& input) {
    for (const Member& m : members) add(m.name + ".weight", {m.out, in}, {m.split, input});
    if (!model_.bias) return;
    for (const Member& m : members) add(m.name + ".bias", {m.out}, {m.split});
  }

  const ModelSpec& model_;
  const GridShape& grid_;
  std::vector<ParameterLayout> list_;
};

}  // namespace

std::vector<ParameterLayout> parameter_layouts(const ModelSpec& model, const GridShape& grid,
                                               HeadLayout head) {
  Collector list(model, grid);
  list.add("model.embed_tokens.weight", {model.vocab, model.hidden}, {kOverX, kOverY});
  if (model.position == Position::kLearned) {
    list.add("model.embed_positions.weight", {model.seq_len, model.hidden}, {kWhole, kOverY});
  }
  for (int i = 0; i < model.layers; ++i) list.block(i);
  list.norm("model.norm");
  if (model.tie_embeddings) return list.take();
  const DimSplit both{{Axis::kX, Axis::kY}, 0};
  const bool gathers = head == HeadLayout::kGatherHidden;
  list.add("lm_head.weight", {model.vocab, model.hidden},
           gathers ? std::vector{both, kWhole} : std::vector{kOverX, kOverY});
  return list.take();
}

HeadLayout run_head_layout(const RunSpec& run) {
  const std::int64_t bytes = run.train.precision == Precision::kBf16 ? 2 : 4;
  return choose_head_layout(run.parallel.grid, run.model.vocab, run.model.hidden,
                            run.train.micro_batch * run.train.seq_len, run.model.tie_embeddings,
                            bytes);
}

HeldRegion held_region(const TensorLayout& layout, const Grid& grid, Coords at, bool zero) {
  const int copies = zero ? 1 : grid.shape().data;
  HeldRegion held;
  held.region = layout.updated(grid, at, zero);
  held.replicas = layout.replicas(grid) * copies;
  held.replica = layout.replica(grid, at) * copies + (zero ? 0 : at.data);
  // Shared key/value heads have replicas of their own; the others are told apart by their axes.
  const bool shared = layout.dims[0].parts != 0;
  held.replica_set = shared ? -1 : layout.split_axes().bits() + (zero ? 16 : 0);
  return held;
}

}  // namespace fourfold
