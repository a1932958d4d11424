#include "policy/step_parts.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fourfold {

StepParts::StepParts(const ModelLayers& layers, const Grid& grid) : grid_(grid) {
  units_.emplace_back();
  table_ = add_matrix({token_table_spec(layers.embedding)});
  if (!layers.embedding.position_name.empty()) {
    positions_ = add_matrix({position_table_spec(layers.embedding)});
  }
  for (const BlockLayers& from : layers.blocks) {
    units_.emplace_back();
    Block block;
    add_vectors(norm_parameters(from.attention_norm));
    block.qkv = add_linear(from.qkv);
    if (from.qk_norm) add_vectors(qk_norm_parameters(*from.qk_norm));
    block.projection = add_linear(from.projection);
    add_vectors(norm_parameters(from.mlp_norm));
    block.up = add_linear(from.up);
    block.down = add_linear(from.down);
    blocks_.push_back(block);
  }
  units_.emplace_back();
  add_vectors(norm_parameters(layers.final_norm));
  head_ = layers.head ? add_matrix({*layers.head}) : table_;
}

const ProgramMatrix& StepParts::matrix(const std::string& name) const {
  const auto found =
      std::ranges::find_if(matrices_, [&](const auto& m) { return m->name == name; });
  FF_CHECK(found != matrices_.end(), "no matrix {}", name);
  return **found;
}

std::vector<std::int64_t> StepParts::sizes_of(const std::vector<ParameterSpec>& specs) const {
  std::vector<std::int64_t> sizes;
  for (const ParameterSpec& p : specs) sizes.push_back(p.layout.block(grid_, Coords{}).elements());
  return sizes;
}

const ProgramMatrix* StepParts::add_matrix(const std::vector<ParameterSpec>& specs) {
  matrices_.push_back(std::make_unique<ProgramMatrix>(
      ProgramMatrix{specs.front().name, sizes_of(specs), units_.size() - 1}));
  add_parameters(specs);
  return matrices_.back().get();
}

void StepParts::add_vectors(const std::vector<ParameterSpec>& specs) {
  if (specs.empty()) return;
  units_.back().vectors.push_back(sizes_of(specs));
  add_parameters(specs);
}

void StepParts::add_parameters(const std::vector<ParameterSpec>& specs) {
  const int x = grid_.shape().x;
  for (const ParameterSpec& p : specs) {
    ProgramUnit::Parameter parameter;
    parameter.stored = p.layout.stored(grid_, Coords{}).elements();
    parameter.rows_over_x = p.rows_over_x;
    const int parts = p.layout.dims[0].parts;
    if (parts > 0 && parts < x) {
      parameter.sharers = x / parts;
      parameter.sharers_name = fmt::format("x sharing {} parts", parts);
    }
    units_.back().parameters.push_back(parameter);
  }
}

StepParts::Linear StepParts::add_linear(const LinearSpec& spec) {
  const auto specs = weight_specs(spec);
  Linear linear{add_matrix(specs), spec.orientation, spec.rows_over_x, 0, 0};
  for (const ParameterSpec& p : specs) {
    const Region block = p.layout.block(grid_, Coords{});
    linear.out += block.dims[0].size();
    linear.in = block.dims[1].size();
  }
  add_vectors(bias_specs(spec));
  return linear;
}

}  // namespace fourfold
