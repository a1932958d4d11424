#include "ckpt/tensor_reader.h"

#include <fmt/core.h>

#include "base/check.h"
#include "ckpt/coverage.h"

namespace fourfold {
namespace {

/// Files that are kept open: a process may have 1,024 descriptors.
constexpr std::size_t kMaxOpenFiles = 512;

}  // namespace

TensorReader::TensorReader(const Fs& fs, std::string folder, Manifest manifest)
    : fs_(fs), folder_(std::move(folder)), manifest_(std::move(manifest)) {
  for (const ManifestTensor& t : manifest_.tensors) held_[t.key()].tensor = &t;
  for (const FileSet& set : file_sets(folder_, manifest_)) add_files(set);
  // Before anyone makes room for a tensor: what is whole in the files is no larger than they are.
  for (const auto& [key, held] : held_) {
    Coverage coverage;
    for (const Piece& piece : held.pieces) coverage.add(piece.region.region);
    if (const auto problem = coverage.problem(Region::whole(held.tensor->shape))) {
      throw Error(ErrorKind::kData, fmt::format("{}: {}: {}", folder_, key, *problem),
                  "`fourfold ckpt verify` says what is damaged");
    }
  }
}

void TensorReader::add_files(const FileSet& set) {
  for (const FileRecord& record : set.files) {
    files_.push_back({set.folder, record});
    add_regions(set, files_.size() - 1);
  }
}

void TensorReader::add_regions(const FileSet& set, std::size_t index) {
  for (const StoredRegion& region : file(index).regions()) {
    const auto found = held_.find(region.key);
    const bool here = found != held_.end() && found->second.tensor->version == set.version;
    if (!here && !set.own) continue;  // Of no interest to this checkpoint.
    if (!here || found->second.tensor->dtype != region.dtype ||
        found->second.tensor->shape.size() != region.region.dims.size()) {
      throw Error(ErrorKind::kData,
                  fmt::format("{}: {} is no tensor of the manifest",
                              join_path(set.folder, files_[index].record.name), region.name()),
                  "`fourfold ckpt verify` says what is damaged");
    }
    found->second.pieces.push_back({index, region});
  }
}

const TensorFile& TensorReader::file(std::size_t index) {
  auto& opened = open_[index];
  if (opened) return *opened;
  if (open_.size() > kMaxOpenFiles) {
    open_.clear();
    return file(index);
  }
  opened = std::make_unique<TensorFile>(fs_, files_[index].folder, files_[index].record);
  return *opened;
}

const ManifestTensor* TensorReader::find(const std::string& key) const {
  const auto found = held_.find(key);
  return found == held_.end() ? nullptr : found->second.tensor;
}

void TensorReader::read(const ManifestTensor& tensor, std::vector<std::byte>& out) {
  const Region whole = Region::whole(tensor.shape);
  const std::int64_t element = dtype_size(tensor.dtype);
  const auto found = held_.find(tensor.key());
  FF_CHECK(found != held_.end(), "{}", tensor.key());
  out.resize(static_cast<std::size_t>(whole.elements() * element));
  for (const Piece& piece : found->second.pieces) {
    file(piece.file).read(piece.region, [&](const Region& box, const std::byte* data) {
      copy_region(box, box, data, whole, out.data(), element);
    });
  }
}

}  // namespace fourfold
