#include "layout/layer_specs.h"

namespace fourfold {
namespace {

ParameterSpec vector_spec(std::string name, TensorLayout layout, Init::Kind kind) {
  return {std::move(name), std::move(layout), {kind, 0}, ParameterRole::kVector};
}

ParameterSpec table_spec(const std::string& name, TensorLayout layout, float init_std) {
  return {name + ".weight",
          std::move(layout),
          {Init::Kind::kNormal, init_std},
          ParameterRole::kEmbedding};
}

}  // namespace

std::vector<ParameterSpec> weight_specs(const LinearSpec& spec) {
  std::vector<ParameterSpec> specs;
  for (const LinearMember& m : spec.members) {
    const TensorLayout layout{
        {m.out, spec.in},
        {{{output_axis(spec.orientation)}, m.parts}, {{input_axis(spec.orientation)}, 0}},
        spec.expert_ranks,
        spec.expert_rank};
    specs.push_back({m.name + ".weight",
                     layout,
                     {Init::Kind::kNormal, spec.init_std},
                     ParameterRole::kLinear,
                     spec.expert});
  }
  return specs;
}

std::vector<ParameterSpec> bias_specs(const LinearSpec& spec) {
  std::vector<ParameterSpec> specs;
  if (!spec.bias) return specs;
  for (const LinearMember& m : spec.members) {
    const TensorLayout layout{
        {m.out}, {{{output_axis(spec.orientation)}, m.parts}}, spec.expert_ranks, spec.expert_rank};
    specs.push_back(vector_spec(m.name + ".bias", layout, Init::Kind::kZeros));
    specs.back().expert = spec.expert;
    specs.back().rows_over_x = spec.rows_over_x && spec.orientation == Orientation::kTransposed;
  }
  return specs;
}

ParameterSpec router_weight_spec(const RouterSpec& spec) {
  ParameterSpec weight{spec.name + ".weight",
                       {{spec.experts, spec.hidden}, {{{}, 0}, {{Axis::kY}, 0}}},
                       {Init::Kind::kNormal, spec.init_std},
                       ParameterRole::kRouter};
  weight.rows_over_x = spec.rows_over_x;
  return weight;
}

std::vector<ParameterSpec> norm_parameters(const NormSpec& spec) {
  const TensorLayout layout{{spec.width}, {{{Axis::kY}, 0}}};
  std::vector<ParameterSpec> specs{vector_spec(spec.name + ".weight", layout, Init::Kind::kOnes)};
  if (spec.bias) specs.push_back(vector_spec(spec.name + ".bias", layout, Init::Kind::kZeros));
  for (ParameterSpec& p : specs) p.rows_over_x = spec.rows_over_x;
  return specs;
}

std::vector<ParameterSpec> qk_norm_parameters(const QkNormSpec& spec) {
  std::vector<ParameterSpec> specs;
  for (const LinearMember& m : {spec.q, spec.k}) {
    specs.push_back(
        vector_spec(m.name + ".weight", {{m.out}, {{{Axis::kX}, m.parts}}}, Init::Kind::kOnes));
  }
  return specs;
}

ParameterSpec token_table_spec(const EmbeddingSpec& spec) {
  return table_spec(spec.name, {{spec.vocab, spec.hidden}, {{{Axis::kX}, 0}, {{Axis::kY}, 0}}},
                    spec.init_std);
}

ParameterSpec position_table_spec(const EmbeddingSpec& spec) {
  return table_spec(spec.position_name, {{spec.positions, spec.hidden}, {{{}, 0}, {{Axis::kY}, 0}}},
                    spec.init_std);
}

}  // namespace fourfold
