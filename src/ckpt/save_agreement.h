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

/// Who writes what of a state, once the ranks agree on it. Good for every save of tensors that stay
/// where they are.
struct SaveAgreement {
  std::vector<RegionSource> sources;    ///< What this rank writes.
  std::vector<ManifestTensor> tensors;  ///< All of them, the same on every rank.
  std::int64_t total_bytes = 0;         ///< Of all ranks' files, at most.
};

/// Collective. An Error (kInternal) where the ranks list different tensors, or their regions do not
/// hold each tensor whole and once.
Result<SaveAgreement> agree_on_save(Communicator& world, std::span<const StateTensor> tensors);

}  // namespace fourfold
