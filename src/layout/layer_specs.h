#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "layout/parameter_spec.h"

namespace fourfold {

// The layers of a model on the grid as plain values: the runtime builds itself from them, and
// whoever counts, plans or simulates reads the same.

/// Which axes split a linear's features. Normal: outputs over x, inputs over y. Transposed: outputs
/// over y, inputs over x. A normal linear leaves its output split as a transposed one wants its
/// input, so the two compose without moving anything.
enum class Orientation { kNormal, kTransposed };

constexpr Axis output_axis(Orientation o) {
  return o == Orientation::kNormal ? Axis::kX : Axis::kY;
}
constexpr Axis input_axis(Orientation o) { return o == Orientation::kNormal ? Axis::kY : Axis::kX; }

/// One named weight of a linear; several share one product when they have the same input.
struct LinearMember {
  std::string name;      ///< Without ".weight".
  std::int64_t out = 0;  ///< Global output features.
  int parts = 0;         ///< Parts of the outputs when fewer than ranks (tensor_layout.h); 0: all.
};

struct LinearSpec {
  std::vector<LinearMember> members;
  std::int64_t in = 0;  ///< Global input features.
  Orientation orientation = Orientation::kNormal;
  bool bias = false;
  float init_std = 0.02f;
  int expert = -1;  ///< Of a linear of an expert: which; it is with one rank of an ExpertGrid.
  int expert_ranks = 1, expert_rank = 0;
  /// The residual stream beside it is cut over x by rows (parallel/stream_rows.h): a transposed
  /// one's output, the gradient of a normal one's input.
  bool rows_over_x = false;
};

/// The product that scores a token for each expert, [experts, hidden]: hidden over y, experts
/// whole, without bias.
struct RouterSpec {
  std::string name;  ///< Without ".weight".
  std::int64_t experts = 0, hidden = 0;
  float init_std = 0.02f;
  bool rows_over_x = false;  ///< As in LinearSpec: its input.
};

struct NormSpec {
  std::string name;        ///< Without ".weight".
  std::int64_t width = 0;  ///< Global features, split over y.
  bool centred = true;     ///< LayerNorm; false: RMSNorm.
  bool bias = true;
  float eps = 1e-5f;
  bool rows_over_x = false;  ///< As in LinearSpec.
};

/// RMSNorm of attention's queries and keys, whose heads are split over x: of each head by itself,
/// or of all heads of a row together.
struct QkNormSpec {
  LinearMember q, k;  ///< Gains: head_dim of one part, or as the projections' outputs.
  bool whole = false;
  float eps = 1e-5f;
};

struct EmbeddingSpec {
  std::string name;            ///< Of the token table, without ".weight".
  std::string position_name;   ///< Of learned positions; empty: none.
  std::int64_t vocab = 0;      ///< Split over x.
  std::int64_t hidden = 0;     ///< Split over y.
  std::int64_t positions = 0;  ///< Rows of learned positions.
  float init_std = 0.02f;
  bool rows_over_x = false;  ///< As in LinearSpec: its output.
};

/// The weights of a linear, [out, in] each, and its biases (none without), in the order of members.
std::vector<ParameterSpec> weight_specs(const LinearSpec& spec);
std::vector<ParameterSpec> bias_specs(const LinearSpec& spec);
ParameterSpec router_weight_spec(const RouterSpec& spec);
/// Gain, then bias.
std::vector<ParameterSpec> norm_parameters(const NormSpec& spec);
/// The gains of q and of k.
std::vector<ParameterSpec> qk_norm_parameters(const QkNormSpec& spec);
/// The token table [vocab, hidden]; positions [positions, hidden].
ParameterSpec token_table_spec(const EmbeddingSpec& spec);
ParameterSpec position_table_spec(const EmbeddingSpec& spec);

}  // namespace fourfold
