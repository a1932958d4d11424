#pragma once

#include <span>
#include <vector>

#include "layout/tensor_layout.h"

namespace fourfold {

/// A part of a tensor that a rank wants to read.
struct LoadItem {
  const TensorLayout* layout = nullptr;  ///< How any grid splits the tensor.
  Region region;                         ///< Global indices.
};

/// The world ranks of the grid that wrote a checkpoint which hold elements of what is wanted,
/// ascending: only their files need to be opened. Which of the holders of a region wrote it is not
/// known here, so all of them are given.
std::vector<int> plan_load(std::span<const LoadItem> wanted, const Grid& writer, bool zero);

}  // namespace fourfold
