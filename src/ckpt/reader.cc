#include "ckpt/reader.h"

#include <fmt/core.h>

#include <set>
#include <unordered_map>

#include "base/check.h"
#include "ckpt/coverage.h"
#include "ckpt/file_names.h"
#include "ckpt/file_set.h"
#include "ckpt/tensor_file.h"
#include "policy/load_plan.h"

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

namespace {

/// Hands each wanted region of a file to its tensor.
void read_file(const Fs& fs, const std::string& folder, const FileRecord& record,
               WantedByKey& wanted) {
  const TensorFile file(fs, folder, record);
  for (const StoredRegion& region : file.regions()) {
    const auto found = wanted.find(region.key);
    if (found != wanted.end()) read_region(file, region, found->second);
  }
}

/// What is wrong with what was read so far; none where all is there.
std::optional<std::string> first_problem(const WantedByKey& wanted) {
  for (const auto& [key, want] : wanted) {
    if (const auto problem = want.coverage.problem(want.tensor->region)) {
      return fmt::format("{}: {}", key, *problem);
    }
  }
  return std::nullopt;
}

/// The names of files that the grid which wrote the set says are needed; none where a tensor's
/// layout is not known.
std::set<std::string> expected_files(const FileSet& set, const WantedByKey& wanted) {
  std::vector<LoadItem> items;
  for (const auto& [key, want] : wanted) {
    if (!want.tensor->layout) return {};
    items.push_back({want.tensor->layout, want.tensor->region});
  }
  const Grid writer(set.grid, set.order);
  std::vector<int> ranks;
  for (const FileRecord& file : set.files) {
    const auto rank = rank_of_file(file.name);
    if (rank && *rank < writer.size()) ranks.push_back(*rank);
  }
  std::set<std::string> names;
  for (const int rank : plan_load(items, writer, set.zero != 0, ranks)) {
    names.insert(set.version ? expert_file_name(rank) : dense_file_name(rank));
  }
  return names;
}

void read_set(const Fs& fs, const FileSet& set, WantedByKey& wanted) {
  const std::set<std::string> expected = expected_files(set, wanted);
  for (const FileRecord& record : set.files) {
    if (expected.contains(record.name)) read_file(fs, set.folder, record, wanted);
  }
  // Where the files are not cut as this version would cut them, the rest may have what is missing.
  std::optional<std::string> problem = first_problem(wanted);
  if (!problem) return;
  for (const FileRecord& record : set.files) {
    if (!expected.contains(record.name)) read_file(fs, set.folder, record, wanted);
  }
  problem = first_problem(wanted);
  if (problem) throw Error(ErrorKind::kData, fmt::format("{}: {}", set.folder, *problem));
}

}  // namespace

void read_tensors(const Fs& fs, const std::string& folder, const Manifest& manifest,
                  std::span<StateTensor> tensors) {
  const auto stored = by_key(manifest);
  const std::vector<FileSet> sets = file_sets(folder, manifest);
  std::vector<WantedByKey> wanted(sets.size());
  for (StateTensor& t : tensors) {
    const auto found = stored.find(t.key());
    t.loaded = found != stored.end();
    if (!t.loaded || t.region.empty()) continue;
    WantedByKey& here = wanted[find_set(sets, *found->second)];
    const bool first = here.try_emplace(t.key(), Wanted{&t, {}}).second;
    FF_CHECK(first && t.data && t.region.dims.size() == t.shape.size(), "{}", t.key());
  }
  for (std::size_t i = 0; i < sets.size(); ++i) {
    if (!wanted[i].empty()) read_set(fs, sets[i], wanted[i]);
  }
}

}  // namespace fourfold
