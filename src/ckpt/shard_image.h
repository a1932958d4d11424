#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "base/work_share.h"
#include "ckpt/fs.h"
#include "ckpt/manifest.h"
#include "ckpt/tensor_file.h"

namespace fourfold {

// A tensor file in memory, byte for byte as it will lie on the disk: what a snapshot is.

/// Copies the regions to `image`, which has room for tensor_file_bytes(), with their checksums
/// taken on the way: what changes or decays afterwards does not match them any more.
FileRecord fill_image(std::span<const RegionSource> regions,
                      const std::map<std::string, std::string>& metadata, const std::string& name,
                      std::byte* image, WorkShare& share);

/// Writes an image as folder/record.name: under a temporary name, synced, renamed, the folder
/// synced.
void write_image(Fs& fs, const std::string& folder, const FileRecord& record,
                 const std::byte* image);

}  // namespace fourfold
