#include "ckpt/file_set.h"

#include <algorithm>

#include "ckpt/file_names.h"
#include "ckpt/fs.h"

namespace fourfold {

std::vector<FileSet> file_sets(const std::string& folder, const Manifest& manifest) {
  const CheckpointMeta& meta = manifest.meta;
  FileSet dense{std::nullopt, /*own=*/true, folder, {}, meta.grid, meta.order, meta.zero};
  FileSet expert = dense;
  expert.version = manifest.id;
  for (const FileRecord& file : manifest.files) {
    if (file.name == kConfigName) continue;
    (is_expert_file(file.name) ? expert : dense).files.push_back(file);
  }
  std::vector<FileSet> sets = {std::move(dense)};
  for (const ReferredCheckpoint& r : manifest.referred) {
    sets.push_back({r.id, /*own=*/false, join_path(parent_path(folder), r.id.folder()), r.files,
                    r.grid, r.order, r.zero});
  }
  sets.push_back(std::move(expert));
  return sets;
}

std::size_t find_set(std::span<const FileSet> sets, const ManifestTensor& tensor) {
  const auto found = std::ranges::lower_bound(sets, tensor.version, {}, &FileSet::version);
  if (found == sets.end() || found->version != tensor.version) {
    throw Error(ErrorKind::kData, tensor.key() + ": the manifest does not say where it lies");
  }
  return static_cast<std::size_t>(found - sets.begin());
}

}  // namespace fourfold
