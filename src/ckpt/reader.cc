#include "ckpt/reader.h"

#include <fmt/core.h>

#include <unordered_map>

#include "base/check.h"
#include "ckpt/coverage.h"
#include "ckpt/tensor_file.h"

namespace fourfold {
namespace {

struct Wanted {
  StateTensor* tensor = nullptr;
  Coverage coverage;
};

using WantedByKey = std::unordered_map<std::string, Wanted>;

std::string described(DType dtype, const std::vector<std::int64_t>& shape) {
  return fmt::format("{} {}", dtype_name(dtype), Region::whole(shape).name());
}

std::unordered_map<std::string, const ManifestTensor*> by_key(const Manifest& manifest) {
  std::unordered_map<std::string, const ManifestTensor*> index;
  for (const ManifestTensor& t : manifest.tensors) index.emplace(t.key(), &t);
  return index;
}

void read_region(const TensorFile& file, const StoredRegion& stored, Wanted& wanted) {
  StateTensor& tensor = *wanted.tensor;
  if (stored.dtype != tensor.dtype || stored.region.dims.size() != tensor.shape.size()) {
    throw Error(ErrorKind::kData, stored.name() + ": is of another dtype or rank in its file");
  }
  const Region part = intersect(stored.region, tensor.region);
  if (part.empty()) return;
  wanted.coverage.add(part);
  file.read(stored, [&](const Region& box, const std::byte* data) {
    copy_region(intersect(box, part), box, data, tensor.region, tensor.data,
                dtype_size(tensor.dtype));
  });
}

}  // namespace

std::optional<Error> compare_tensors(const Manifest& manifest,
                                     std::span<const StateTensor> tensors) {
  const auto stored = by_key(manifest);
  const std::string hint = fmt::format(
      "the checkpoint is of the model \"{}\"; train that one, or "
      "choose another run folder",
      manifest.meta.model);
  for (const StateTensor& t : tensors) {
    const auto found = stored.find(t.key());
    if (found == stored.end()) {
      if (t.optional) continue;
      return Error(ErrorKind::kData, fmt::format("the checkpoint has no {}", t.key()), hint);
    }
    const ManifestTensor& there = *found->second;
    if (there.dtype != t.dtype || there.shape != t.shape) {
      return Error(ErrorKind::kData,
                   fmt::format("{} is {} in the checkpoint and {} in this run", t.key(),
                               described(there.dtype, there.shape), described(t.dtype, t.shape)),
                   hint);
    }
  }
  return std::nullopt;
}

void read_tensors(const Fs& fs, const std::string& folder, const Manifest& manifest,
                  std::span<StateTensor> tensors) {
  const auto stored = by_key(manifest);
  WantedByKey wanted;
  for (StateTensor& t : tensors) {
    t.loaded = stored.contains(t.key());
    if (!t.loaded || t.region.empty()) continue;
    const bool first = wanted.try_emplace(t.key(), Wanted{&t, {}}).second;
    FF_CHECK(first && t.data && t.region.dims.size() == t.shape.size(), "{}", t.key());
  }
  for (const FileRecord& record : manifest.files) {
    if (record.name == kConfigName) continue;
    const TensorFile file(fs, folder, record);
    for (const StoredRegion& region : file.regions()) {
      const auto found = wanted.find(region.key);
      if (found != wanted.end()) read_region(file, region, found->second);
    }
  }
  for (const auto& [key, want] : wanted) {
    if (const auto problem = want.coverage.problem(want.tensor->region)) {
      throw Error(ErrorKind::kData, fmt::format("{}: {}: {}", folder, key, *problem));
    }
  }
}

}  // namespace fourfold
