#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/manifest.h"

namespace fourfold {

/// Tensor files that the ranks of one grid wrote, and in which tensors of a checkpoint lie.
struct FileSet {
  /// Of the tensors that lie here; none: those that do not rotate.
  std::optional<CheckpointId> version;
  /// Files of the checkpoint itself. Those of an older one may hold tensors of no interest as well.
  bool own = true;
  std::string folder;
  std::vector<FileRecord> files;
  GridShape grid;  ///< That wrote them, with the order of its ranks and ZeRO (CheckpointMeta).
  std::string order;
  int zero = 0;
};

/// All files in which tensors of the checkpoint in `folder` lie, in ascending order of `version`:
/// its own dense files, expert files of older ones (in the folders beside its own), its own.
std::vector<FileSet> file_sets(const std::string& folder, const Manifest& manifest);

/// The index of the set in which the tensor lies. Throws Error (kData) where there is none.
std::size_t find_set(std::span<const FileSet> sets, const ManifestTensor& tensor);

}  // namespace fourfold
