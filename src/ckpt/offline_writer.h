#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ckpt/fs.h"
#include "ckpt/manifest.h"
#include "layout/tensor_layout.h"

namespace fourfold {

/// A tensor of a checkpoint to be written, and how the grid's ranks hold it.
struct OfflineTensor {
  ManifestTensor tensor;
  std::optional<TensorLayout> layout;  ///< None: every rank has it whole.
};

/// Makes `out` the whole of a tensor, dense and row-major. It is called at least twice for each
/// tensor and gives the same bytes each time.
using TensorSource = std::function<void(const ManifestTensor& tensor, std::vector<std::byte>& out)>;

/// Writes a checkpoint as the ranks of meta.grid (with meta.order and meta.zero) would have saved
/// it, file for file and byte for byte, and makes it the current one of `dir` (a folder
/// checkpoints/, which is made). In memory at a time: one tensor, one rank's part of it, and the
/// files' headers. What the source gives is read once before anything is written. Returns the
/// checkpoint's folder. Throws Error: kUsage where `dir` has checkpoints already; kData of the disk
/// or the source, and then leaves no checkpoint.
std::string write_offline(Fs& fs, const std::string& dir, const CheckpointMeta& meta,
                          std::span<const OfflineTensor> tensors, const TensorSource& source);

}  // namespace fourfold
