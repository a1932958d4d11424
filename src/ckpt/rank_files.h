#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/work_share.h"
#include "ckpt/fs.h"
#include "ckpt/manifest.h"
#include "ckpt/tensor_file.h"

namespace fourfold {

// The files that one rank writes of a checkpoint: a dense file, and an expert file where it writes
// regions of tensors that rotate. As one image in memory they lie back to back, the second at the
// next multiple of kDirectAlignment.

/// What goes into them. The bytes outlive this, and must not change while it is read.
struct RankContent {
  int rank = 0;
  Step step;
  std::span<const RegionSource> dense;
  std::vector<RegionSource> expert;  ///< Empty: there is no such file.
};

/// What the manifest will say of them.
struct RankRecords {
  FileRecord dense;
  std::optional<FileRecord> expert;
};

/// Writes them as write_tensor_file does.
RankRecords write_rank_files(Fs& fs, const std::string& folder, const RankContent& content);

/// Bytes of their image.
std::int64_t rank_image_bytes(const RankContent& content);
/// The same of an image that is there.
std::int64_t rank_image_bytes(const RankRecords& records);
/// Copies them to `image`, which has room for rank_image_bytes().
RankRecords fill_rank_image(const RankContent& content, std::byte* image, WorkShare& share);
/// Writes the files of an image as write_image does.
void write_rank_image(Fs& fs, const std::string& folder, const RankRecords& records,
                      const std::byte* image);
/// Whether the bytes of an image are those that were copied.
bool is_rank_image(const RankRecords& records, const std::byte* image);

}  // namespace fourfold
