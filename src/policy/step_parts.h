#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "layout/grid.h"
#include "policy/model_layers.h"

namespace fourfold {

/// A matrix, or several that one product uses, as collectives see them.
struct ProgramMatrix {
  std::string name;
  std::vector<std::int64_t> members;  ///< Elements of each one's block, whole over z.
  std::size_t unit = 0;
};

/// The parameters that are updated together.
struct ProgramUnit {
  struct Parameter {
    std::int64_t stored = 0;   ///< Elements that this rank stores.
    int sharers = 1;           ///< Ranks of x that share it...
    std::string sharers_name;  ///< ...and what their group is called.
    bool rows_over_x = false;
  };
  std::vector<Parameter> parameters;
  std::vector<std::vector<std::int64_t>>
      vectors;  ///< Of each block of vectors: its members' sizes.
};

/// What of a model without experts collectives move, on the rank at (0, 0, 0, 0).
class StepParts {
 public:
  StepParts(const ModelLayers& layers, const Grid& grid);
  StepParts(const StepParts&) = delete;
  StepParts& operator=(const StepParts&) = delete;

  struct Linear {
    const ProgramMatrix* matrix = nullptr;
    Orientation orientation = Orientation::kNormal;
    bool rows_over_x = false;
    std::int64_t out = 0, in = 0;  ///< Features of this rank.
  };
  struct Block {
    Linear qkv, projection, up, down;
  };

  const ProgramMatrix& table() const { return *table_; }
  /// Null without learned positions.
  const ProgramMatrix* positions() const { return positions_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  /// The table where it is tied.
  const ProgramMatrix& head() const { return *head_; }
  const ProgramMatrix& matrix(const std::string& name) const;
  /// Embedding, blocks, end.
  const std::vector<ProgramUnit>& units() const { return units_; }

 private:
  const ProgramMatrix* add_matrix(const std::vector<ParameterSpec>& specs);
  void add_vectors(const std::vector<ParameterSpec>& specs);
  void add_parameters(const std::vector<ParameterSpec>& specs);
  Linear add_linear(const LinearSpec& spec);
  std::vector<std::int64_t> sizes_of(const std::vector<ParameterSpec>& specs) const;

  const Grid grid_;
  std::vector<std::unique_ptr<ProgramMatrix>> matrices_;
  std::vector<ProgramUnit> units_;
  const ProgramMatrix* table_ = nullptr;
  const ProgramMatrix* positions_ = nullptr;
  const ProgramMatrix* head_ = nullptr;
  std::vector<Block> blocks_;
};

}  // namespace fourfold
