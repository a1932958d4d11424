#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "ckpt/manifest.h"
#include "ckpt/save_agreement.h"
#include "comm/communicator.h"

namespace fourfold {

/// Which tensors a save takes, by their index in the state's list; empty: all. What does not rotate
/// is taken in any case.
using SaveSelection = std::vector<bool>;

/// Whether a save with this selection writes the tensor of that index.
bool is_taken(const SaveAgreement& agreement, const SaveSelection& selection, std::size_t tensor);

/// Collective, where tensors rotate. An Error (kInternal) where a selection is not of this state or
/// is not the same on all ranks.
Status agree_on_selection(Communicator& world, const SaveAgreement& agreement,
                          const SaveSelection& selection);

/// The regions that this rank writes to its expert file.
std::vector<RegionSource> selected_regions(const SaveAgreement& agreement,
                                           const SaveSelection& selection);

/// What the manifest of a save will say of its tensors, and what the save takes on the disk.
struct SaveContent {
  std::vector<ManifestTensor> tensors;  ///< Those left to older checkpoints have their version.
  std::vector<std::size_t> taken;  ///< Those of them that rotate and lie in this save's own files.
  std::vector<ReferredCheckpoint> referred;
  std::int64_t bytes = 0;  ///< Of all ranks' files, at most.
};

/// `base` is the newest committed checkpoint, whose versions are the newest ones; null: none. An
/// Error (kData) where it has no version of a tensor that the selection leaves out.
Result<SaveContent> save_content(const SaveAgreement& agreement, const SaveSelection& selection,
                                 const Manifest* base);

/// What is said of the older checkpoints that these versions name, given the newest committed one,
/// which holds them or refers to them. Throws Error (kData) where it does neither.
std::vector<ReferredCheckpoint> referred_by(const std::vector<ManifestTensor>& tensors,
                                            const Manifest& base);

}  // namespace fourfold
