#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/region.h"

namespace fourfold {

/// Whether boxes make up another box, each element once.
class Coverage {
 public:
  /// Adds a box; empty ones are passed over.
  void add(Region box);

  /// None where the boxes that were added hold each element of `whole` exactly once and nothing
  /// else; else what is wrong, for a message: "…: 3 of 12 elements are missing".
  std::optional<std::string> problem(const Region& whole) const;

 private:
  std::vector<Region> boxes_;
};

}  // namespace fourfold
