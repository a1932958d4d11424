#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "ckpt/manifest.h"
#include "ckpt/state.h"
#include "ckpt/tensor_file.h"
#include "comm/communicator.h"

namespace fourfold {

/// A region of a tensor that rotates.
struct RotatingSource {
  std::size_t tensor = 0;  ///< Index into the tensors.
  RegionSource region;
};

/// Who writes what of a state, once the ranks agree on it. Good for every save of tensors that stay
/// where they are. Who writes a region does not depend on which tensors a save takes.
struct SaveAgreement {
  std::vector<RegionSource> dense;       ///< What this rank writes at every save.
  std::vector<RotatingSource> rotating;  ///< And where a save takes the tensor.
  std::vector<ManifestTensor> tensors;   ///< All of them, the same on every rank.
  std::vector<bool> rotates;             ///< Of each tensor.
  std::int64_t total_bytes = 0;          ///< Of all ranks' files where all is taken, at most.
};

/// Collective. An Error (kInternal) where the ranks list different tensors, their regions do not
/// hold each tensor whole and once, or one rotates that is no expert's.
Result<SaveAgreement> agree_on_save(Communicator& world, std::span<const StateTensor> tensors);

}  // namespace fourfold
