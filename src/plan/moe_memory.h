#pragma once

#include <cstdint>

#include "layout/grid.h"
#include "policy/model_layers.h"
#include "policy/recompute.h"

namespace fourfold {

/// How tokens are taken to spread over the experts.
enum class ExpertLoad {
  kEven,   ///< Every expert has as many.
  kWorst,  ///< All go to the experts of this rank, as many as these may take.
};

/// Rows of tokens that this rank's experts get from a micro-batch of each of the ranks that send to
/// them: a row for each of a token's experts.
std::int64_t expert_rows(const RunSpec& run, const Grid& grid, Coords at, ExpertLoad load);

/// Bytes that the experts of one block add to a rank's memory in place of an MLP.
class MoeMemory {
 public:
  /// `rows` tokens of this rank in a pass, of which its experts get `expert_rows` rows.
  MoeMemory(const RunSpec& run, const Grid& grid, Coords at, const BlockLayers& block,
            std::int64_t rows, std::int64_t expert_rows);

  /// From forward to backward, without the block's normed input.
  std::int64_t kept(const KeptActivations& kept) const;
  /// What backward holds besides.
  std::int64_t backward() const;
  /// The block's experts gathered over those that store shards of them, and their gradients before
  /// they are scattered; 0 without shards.
  std::int64_t gathered() const { return shards_ ? elements_ * compute_ : 0; }
  std::int64_t scattering() const;

 private:
  std::int64_t compute_;  ///< Bytes of an element.
  std::int64_t rows_;
  bool is_cut_;            ///< The residual stream over x.
  std::int64_t own_rows_;  ///< Of it on this rank.
  std::int64_t expert_rows_, top_k_, experts_;
  std::int64_t hidden_, up_, activated_;  ///< Widths of this rank.
  std::int64_t shared_up_ = 0, shared_activated_ = 0;
  int expert_ranks_;
  bool shared_gate_, shards_;
  std::int64_t elements_ = 0;  ///< Of the matrices of all experts of this rank.
};

}  // namespace fourfold
