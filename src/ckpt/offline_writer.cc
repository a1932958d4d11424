#include "ckpt/offline_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>

#include "base/check.h"
#include "base/crc32c.h"
#include "ckpt/catalog.h"
#include "ckpt/file_names.h"
#include "ckpt/retention.h"
#include "ckpt/tensor_file.h"
#include "policy/held_region.h"
#include "policy/save_plan.h"

namespace fourfold {
namespace {

/// Files that are written at a time; with more ranks the tensors are read again.
constexpr int kMaxFiles = 256;
/// What is written beside the tensors, apart from the manifest's lines.
constexpr std::int64_t kSpareBytes = 64 << 10;
constexpr std::int64_t kManifestLineBytes = 256;

/// The file of one rank: what goes into it, and how far it is written.
class RankFile {
 public:
  RankFile(const CheckpointMeta& meta, int rank, std::span<const OfflineTensor> tensors)
      : name_(dense_file_name(rank)), metadata_(tensor_file_metadata(meta.step, rank)) {
    const Grid grid(meta.grid, meta.order);
    const Coords at = grid.coords(WorldRank(rank));
    std::vector<SaveItem> items;
    for (const OfflineTensor& t : tensors) {
      const HeldRegion held = t.layout ? held_region(*t.layout, grid, at, meta.zero != 0)
                                       : held_by_all(t.tensor.shape, rank, grid.size());
      items.push_back({t.tensor.key(), held.region, dtype_size(t.tensor.dtype), held.replica,
                       held.replicas, held.replica_set});
    }
    for (const SavePiece& piece : plan_save(items)) {
      pieces_.push_back({items[piece.item].key, tensors[piece.item].tensor.dtype, piece.region});
      tensor_of_.push_back(piece.item);
    }
    crcs_.resize(pieces_.size());
  }

  std::int64_t size() const { return tensor_file_bytes(pieces_, metadata_); }
  const FileRecord& record() const { return record_; }

  /// Notes the checksum of this rank's part of a tensor; the tensors come in their order.
  void measure(std::size_t tensor, const Region& whole, const std::vector<std::byte>& data) {
    if (next_ == pieces_.size() || tensor_of_[next_] != tensor) return;
    const auto part = part_of(whole, data);
    crcs_[next_] = crc32c(part.data(), part.size());
    ++next_;
  }

  void open(Fs& fs, const std::string& folder) {
    FF_CHECK(next_ == pieces_.size(), "{}: {} of {} measured", name_, next_, pieces_.size());
    path_ = join_path(folder, name_);
    file_ = fs.create(path_ + kTemporarySuffix);
    const std::string header = tensor_file_header(pieces_, metadata_, crcs_);
    file_->append(header.data(), header.size());
    record_ = {name_, static_cast<std::int64_t>(header.size()), 0, 0};
    record_.file_crc = record_.header_crc = crc32c(header.data(), header.size());
    next_ = 0;
  }

  void write(std::size_t tensor, const Region& whole, const std::vector<std::byte>& data) {
    if (next_ == pieces_.size() || tensor_of_[next_] != tensor) return;
    const auto part = part_of(whole, data);
    if (crc32c(part.data(), part.size()) != crcs_[next_]) {
      throw Error(ErrorKind::kData, pieces_[next_].key + " changed while it was read",
                  "run the command again when nothing else writes there");
    }
    file_->append(part.data(), part.size());
    record_.size += static_cast<std::int64_t>(part.size());
    record_.file_crc = crc32c(part.data(), part.size(), record_.file_crc);
    ++next_;
  }

  void close(Fs& fs) {
    FF_CHECK(next_ == pieces_.size(), "{}: {} of {} written", name_, next_, pieces_.size());
    file_->sync();
    file_->close();
    file_.reset();
    fs.rename(path_ + kTemporarySuffix, path_);
  }

 private:
  /// The bytes of the next piece, in `data` itself where the piece is all of it.
  std::span<const std::byte> part_of(const Region& whole, const std::vector<std::byte>& data) {
    const RegionSource& piece = pieces_[next_];
    if (piece.region == whole) return data;
    buffer_.resize(region_bytes(piece));
    copy_region(piece.region, whole, data.data(), piece.region, buffer_.data(),
                dtype_size(piece.dtype));
    return buffer_;
  }

  std::string name_, path_;
  std::map<std::string, std::string> metadata_;
  std::vector<RegionSource> pieces_;
  std::vector<std::size_t> tensor_of_;  ///< The tensor of each piece.
  std::vector<std::uint32_t> crcs_;
  std::size_t next_ = 0;
  std::vector<std::byte> buffer_;
  std::unique_ptr<WritableFile> file_;
  FileRecord record_;
};

template <class Visit>
void each_tensor(std::span<const OfflineTensor> tensors, const TensorSource& source, Visit visit) {
  std::vector<std::byte> data;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const ManifestTensor& tensor = tensors[i].tensor;
    const Region whole = Region::whole(tensor.shape);
    source(tensor, data);
    FF_CHECK(static_cast<std::int64_t>(data.size()) == whole.elements() * dtype_size(tensor.dtype),
             "{}: {} bytes", tensor.key(), data.size());
    visit(i, whole, data);
  }
}

/// Writes the files of ranks [first, end) and adds their records.
void write_ranks(Fs& fs, const std::string& folder, const CheckpointMeta& meta, int first, int end,
                 std::span<const OfflineTensor> tensors, const TensorSource& source,
                 std::vector<FileRecord>& records) {
  std::vector<RankFile> files;
  for (int rank = first; rank < end; ++rank) files.emplace_back(meta, rank, tensors);
  each_tensor(tensors, source, [&](std::size_t i, const Region& whole, const auto& data) {
    for (RankFile& file : files) file.measure(i, whole, data);
  });
  std::int64_t bytes = kSpareBytes + static_cast<std::int64_t>(meta.config_toml.size()) +
                       kManifestLineBytes * static_cast<std::int64_t>(tensors.size());
  for (const RankFile& file : files) bytes += file.size();
  fs.make_directories(folder);
  const std::int64_t free = fs.free_bytes(folder);
  if (free < bytes) throw fs_error(ENOSPC, "write a checkpoint in", folder, bytes, free);
  for (RankFile& file : files) file.open(fs, folder);
  each_tensor(tensors, source, [&](std::size_t i, const Region& whole, const auto& data) {
    for (RankFile& file : files) file.write(i, whole, data);
  });
  for (RankFile& file : files) {
    file.close(fs);
    records.push_back(file.record());
  }
  fs.sync_directory(folder);
}

}  // namespace

std::string write_offline(Fs& fs, const std::string& dir, const CheckpointMeta& meta,
                          std::span<const OfflineTensor> tensors, const TensorSource& source) {
  if (fs.is_directory(dir)) {
    if (read_catalog(fs, dir).has_history()) {
      throw Error(ErrorKind::kUsage, dir + " has checkpoints already", "choose another folder");
    }
    collect_garbage(fs, dir);
  }
  Manifest manifest;
  manifest.id = {meta.step, 0};
  manifest.meta = meta;
  for (const OfflineTensor& t : tensors) manifest.tensors.push_back(t.tensor);
  const std::string name = manifest.id.folder(), folder = join_path(dir, name);
  try {
    for (int first = 0; first < meta.grid.size(); first += kMaxFiles) {
      write_ranks(fs, folder, meta, first, std::min(first + kMaxFiles, meta.grid.size()), tensors,
                  source, manifest.files);
    }
    commit_checkpoint(fs, dir, std::move(manifest), meta.config_toml);
  } catch (const Error&) {
    try {
      remove_checkpoint(fs, dir, name);
    } catch (const Error&) {
      // It has no manifest, or the disk fails: the first error says what is wrong.
    }
    throw;
  }
  return folder;
}

}  // namespace fourfold
