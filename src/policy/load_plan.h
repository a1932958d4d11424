#pragma once

#include <span>
#include <vector>

#include "layout/tensor_layout.h"

namespace fourfold {

/// A part of a tensor that a rank wants to read.
struct LoadItem {
  const TensorLayout* layout = nullptr;  ///< How the reader's grid, or any, splits the tensor.
  Region region;                         ///< Global indices.
};

/// Which of these world ranks of the grid that wrote a checkpoint hold elements of what is wanted:
/// only their files need to be opened. Which of the holders of a region wrote it is not
/// known here, so all of them are given; and all ranks where a layout is not one of the writer's
/// grid. A layout that depends on the reader's grid (shared key/value heads, the head) may miss
/// some: who reads looks whether all is there.
std::vector<int> plan_load(std::span<const LoadItem> wanted, const Grid& writer, bool zero,
                           std::span<const int> ranks);

}  // namespace fourfold
