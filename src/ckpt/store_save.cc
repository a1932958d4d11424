#include <fmt/core.h>

#include <cerrno>
#include <map>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/fault_point.h"
#include "base/philox.h"
#include "ckpt/agree.h"
#include "ckpt/catalog.h"
#include "ckpt/store.h"
#include "ckpt/tensor_file.h"
#include "policy/save_plan.h"

namespace fourfold {
namespace {

/// What rank 0 writes beside the tensors, at most, apart from the manifest's lines.
constexpr std::int64_t kSpareBytes = 64 << 10;
constexpr std::int64_t kManifestLineBytes = 256;

/// A multiplier of a tensor, so that sums over tensors tell which elements they are of.
std::uint64_t weight_of(const std::string& key) {
  const std::uint32_t crc = crc32c(key.data(), key.size());
  const auto bits = philox4x32({crc, static_cast<std::uint32_t>(key.size()), 0, 0}, {0, 0});
  return (static_cast<std::uint64_t>(bits[0]) << 32) | bits[1] | 1u;
}

/// What a rank says of itself before it writes: a few numbers, however much it writes.
struct Announcement {
  std::int64_t list = 0;      ///< A hash of the tensors' list: equal on all ranks.
  std::int64_t bytes = 0;     ///< Of its file.
  std::int64_t covered = 0;   ///< Elements written, each times its tensor's weight, modulo 2^64.
  std::int64_t expected = 0;  ///< The same of whole tensors: equal on all ranks.
};

std::vector<SaveItem> items_of(std::span<const StateTensor> tensors) {
  std::vector<SaveItem> items;
  for (const StateTensor& t : tensors) {
    items.push_back({t.key(), t.region, dtype_size(t.dtype), t.replica, t.replicas, t.replica_set});
  }
  return items;
}

/// The pieces that this rank writes, with their place in memory: whole rows of a dense region.
std::vector<RegionSource> sources_of(std::span<const StateTensor> tensors) {
  std::vector<RegionSource> sources;
  const auto items = items_of(tensors);
  for (const SavePiece& piece : plan_save(items)) {
    const StateTensor& t = tensors[piece.item];
    FF_CHECK(t.data && t.region.dims.size() == t.shape.size(), "{}", t.key());
    std::int64_t offset = 0;
    if (!t.region.dims.empty()) {
      const std::int64_t row = t.region.elements() / t.region.dims[0].size();
      offset = (piece.region.dims[0].begin - t.region.dims[0].begin) * row * dtype_size(t.dtype);
    }
    sources.push_back({t.key(), t.dtype, piece.region, static_cast<const char*>(t.data) + offset});
  }
  return sources;
}

Announcement announce(std::span<const StateTensor> tensors, std::span<const RegionSource> sources,
                      std::int64_t file_bytes, Step step) {
  Announcement a;
  std::uint64_t expected = 0, covered = 0;
  std::uint32_t list = 0;
  for (const StateTensor& t : tensors) {
    const std::string line = fmt::format("{} {} {} {};", t.key(), dtype_name(t.dtype),
                                         tensor_class_name(t.cls), Region::whole(t.shape).name());
    list = crc32c(line.data(), line.size(), list);
    expected += weight_of(t.key()) * static_cast<std::uint64_t>(Region::whole(t.shape).elements());
  }
  for (const RegionSource& s : sources) {
    covered += weight_of(s.key) * static_cast<std::uint64_t>(s.region.elements());
  }
  a.list = static_cast<std::int64_t>(list) ^ (step.value << 32);
  a.bytes = file_bytes;
  a.covered = static_cast<std::int64_t>(covered);
  a.expected = static_cast<std::int64_t>(expected);
  return a;
}

/// Checks that the ranks list the same and together write each tensor once; gives all their bytes.
Result<std::int64_t> check_announcements(Communicator& world, const Announcement& mine) {
  const std::int64_t numbers[] = {mine.list, mine.bytes, mine.covered, mine.expected};
  const auto all = gather_numbers(world, numbers);
  std::uint64_t covered = 0;
  std::int64_t bytes = 0;
  for (std::size_t r = 0; r < all.size(); r += std::size(numbers)) {
    if (all[r] != all[0]) {
      return Error(ErrorKind::kInternal,
                   fmt::format("rank {} saves other tensors, or another step, than rank 0",
                               r / std::size(numbers)));
    }
    bytes += all[r + 1];
    covered += static_cast<std::uint64_t>(all[r + 2]);
  }
  if (covered != static_cast<std::uint64_t>(mine.expected)) {
    return Error(ErrorKind::kInternal,
                 "the regions that the ranks save are not each tensor, whole and once");
  }
  return bytes;
}

Manifest make_manifest(const CheckpointId& id, const CheckpointMeta& meta,
                       std::span<const StateTensor> tensors,
                       const std::vector<std::int64_t>& records) {
  Manifest manifest;
  manifest.id = id;
  manifest.meta = meta;
  for (std::size_t r = 0; r * 3 < records.size(); ++r) {
    manifest.files.push_back({dense_file_name(static_cast<int>(r)), records[r * 3],
                              static_cast<std::uint32_t>(records[r * 3 + 1]),
                              static_cast<std::uint32_t>(records[r * 3 + 2])});
  }
  for (const StateTensor& t : tensors) {
    manifest.tensors.push_back({t.name, t.kind, t.dtype, t.cls, t.shape});
  }
  return manifest;
}

/// Rank 0's part before the others write: the folder, and room for what is to come.
CheckpointId prepare_folder(Fs& fs, const std::string& dir, Step step, std::int64_t bytes) {
  fs.make_directories(dir);
  collect_garbage(fs, dir);
  const std::int64_t free = fs.free_bytes(dir);
  if (free < bytes) throw fs_error(ENOSPC, "save a checkpoint in", dir, bytes, free);
  CheckpointId id{step, 0};
  while (fs.exists(join_path(dir, id.folder()))) ++id.incarnation;
  fs.make_directories(join_path(dir, id.folder()));
  return id;
}

}  // namespace

Status CheckpointStore::save(Communicator& world, const CheckpointMeta& meta,
                             std::span<const StateTensor> tensors) try {
  ++saves_;
  return save_checkpoint(world, meta, tensors);
} catch (const Error& error) {
  return error;
}

Status CheckpointStore::save_checkpoint(Communicator& world, const CheckpointMeta& meta,
                                        std::span<const StateTensor> tensors) {
  const int rank = world.rank();
  const std::map<std::string, std::string> metadata = {
      {"format", "fourfold"},
      {"version", std::to_string(kCheckpointVersion)},
      {"step", std::to_string(meta.step.value)},
      {"rank", std::to_string(rank)}};
  const auto sources = sources_of(tensors);
  const auto total = check_announcements(
      world, announce(tensors, sources, tensor_file_bytes(sources, metadata), meta.step));
  if (!total) return total.error();

  const std::int64_t wanted =
      total.value() + kSpareBytes + static_cast<std::int64_t>(meta.config_toml.size()) +
      kManifestLineBytes * (static_cast<std::int64_t>(tensors.size()) + world.size());
  CheckpointId id{meta.step, 0};
  if (auto failed =
          run_on_first(world, [&] { id = prepare_folder(fs_, dir_, meta.step, wanted); })) {
    return *failed;
  }
  id.incarnation = static_cast<int>(broadcast_numbers(world, {id.incarnation})[0]);

  const std::string folder = join_path(dir_, id.folder());
  FileRecord record;
  auto failed = run_together(world, [&] {
    fault_point("ckpt.write", rank, saves_);
    record = write_tensor_file(fs_, folder, dense_file_name(rank), sources, metadata);
  });
  const std::int64_t numbers[] = {record.size, record.header_crc, record.file_crc};
  const auto records = gather_numbers(world, numbers);
  if (!failed) {
    failed = run_on_first(world, [&] {
      fault_point("ckpt.commit", rank, saves_);
      commit_checkpoint(fs_, dir_, make_manifest(id, meta, tensors, records), meta.config_toml);
      fault_point("ckpt.committed", rank, saves_);
    });
  }
  if (!failed) return Done{};
  // What cannot be removed now (a disk that fails) is no checkpoint and is removed by a later save.
  const auto left = run_on_first(world, [&] { remove_checkpoint(fs_, dir_, id.folder()); });
  if (left && rank == 0) log_.warning("{}", left->what());
  return *failed;
}

}  // namespace fourfold
