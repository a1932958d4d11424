#include "ckpt/surviving_copies.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/crc32c.h"
#include "ckpt/agree.h"
#include "ckpt/catalog.h"
#include "ckpt/shard_image.h"
#include "ckpt/snapshot_buffer.h"

namespace fourfold {
namespace {

constexpr int kMostCopies = 3;
// What a note says beside a checkpoint's manifest.
constexpr const char* kCommittedScalar = "copy.committed";
constexpr const char* kConfigScalar = "copy.config";
constexpr std::int64_t kNoStep = -1;

std::string note_path(const std::string& folder, int rank, int index) {
  return copy_path(folder, rank, index) + ".json";
}

/// A copy that its note says is whole.
struct Copy {
  std::int64_t step = kNoStep;
  std::int64_t committed = kNoStep;
  std::string path;
  Manifest note;
};

std::optional<Copy> read_note(const Fs& fs, const std::string& folder, int rank, int index,
                              const CheckpointMeta& expected) {
  const std::string path = note_path(folder, rank, index);
  if (!fs.exists(path)) return std::nullopt;
  auto note = parse_manifest(read_file(fs, path, kMaxManifestBytes));
  if (!note || note.value().files.size() != 1) return std::nullopt;
  Copy copy{note.value().id.step.value, kNoStep, copy_path(folder, rank, index),
            std::move(note.value())};
  CheckpointMeta& meta = copy.note.meta;
  if (meta.model_hash != expected.model_hash || meta.grid != expected.grid ||
      meta.order != expected.order || meta.zero != expected.zero ||
      copy.note.files[0].name != dense_file_name(rank)) {
    return std::nullopt;
  }
  const std::string committed = meta.scalars[kCommittedScalar];
  std::from_chars(committed.data(), committed.data() + committed.size(), copy.committed);
  meta.config_toml = meta.scalars[kConfigScalar];
  meta.scalars.erase(kCommittedScalar);
  meta.scalars.erase(kConfigScalar);
  return copy;
}

/// The newest step that every rank has; none where there is no such step.
std::int64_t newest_common(Communicator& world, const std::vector<Copy>& mine) {
  std::array<std::int64_t, kMostCopies> steps;
  steps.fill(kNoStep);
  for (std::size_t i = 0; i < mine.size(); ++i) steps[i] = mine[i].step;
  const auto all = gather_numbers(world, steps);
  std::sort(steps.rbegin(), steps.rend());
  for (const std::int64_t step : steps) {
    bool common = step != kNoStep;
    for (std::size_t first = 0; first < all.size(); first += kMostCopies) {
      common = common && std::count(&all[first], &all[first] + kMostCopies, step) > 0;
    }
    if (common) return step;
  }
  return kNoStep;
}

/// The newest step on the disk, as rank 0 finds it.
std::int64_t newest_on_disk(Communicator& world, CheckpointStore& store) {
  std::int64_t newest = kNoStep;
  // What cannot be read here will be heard of by the load.
  const auto failed = run_on_first(world, [&] {
    const Catalog catalog = read_catalog(store.fs(), store.dir());
    for (const CheckpointId& id : catalog.complete) newest = std::max(newest, id.step.value);
  });
  if (failed) return std::numeric_limits<std::int64_t>::max();
  return broadcast_numbers(world, {newest})[0];
}

/// Maps a copy, and finds it to be what was copied.
void map_copy(const Copy& copy, SnapshotBuffer& buffer) {
  const FileRecord& record = copy.note.files[0];
  buffer.reserve(record.size, copy.path);
  if (crc32c(buffer.data(), static_cast<std::size_t>(record.size)) != record.file_crc) {
    throw Error(ErrorKind::kData, copy.path + ": its checksum is wrong");
  }
}

Result<std::optional<CheckpointId>> write_copy(Communicator& world, CheckpointStore& store,
                                               const Copy& copy) {
  SnapshotBuffer buffer;
  if (const auto damaged = run_together(world, [&] { map_copy(copy, buffer); })) return *damaged;
  const FileRecord& record = copy.note.files[0];
  std::int64_t total = record.size;
  world.all_reduce({&total, 1, DType::kI64}, ReduceOp::kSum).wait_host();
  const SaveAgreement agreement{{}, copy.note.tensors, total};
  const auto task = store.begin_save(world.rank(), copy.note.meta, agreement,
                                     [&](const std::string& folder) {
                                       write_image(store.fs(), folder, record, buffer.data());
                                       return record;
                                     },
                                     /*retention=*/{});
  task->finish(world);
  if (task->report().error) return *task->report().error;
  return std::optional<CheckpointId>(task->report().id);
}

}  // namespace

std::string copy_path(const std::string& folder, int rank, int index) {
  return join_path(folder, fmt::format("rank-{:05}.{}.safetensors", rank, index));
}

void describe_copy(const std::string& folder, int rank, int index, const CheckpointMeta& meta,
                   const FileRecord& record, const std::vector<ManifestTensor>& tensors,
                   std::int64_t committed) {
  Manifest note{{meta.step, 0}, meta, {record}, tensors};
  note.meta.scalars[kCommittedScalar] = std::to_string(committed);
  note.meta.scalars[kConfigScalar] = meta.config_toml;
  PosixFs fs;
  write_file_atomically(fs, note_path(folder, rank, index), manifest_text(note));
}

void forget_copy(const std::string& folder, int rank, int index) {
  PosixFs().remove_file(note_path(folder, rank, index));
}

void remove_copies(const std::string& folder, int rank, int ranks) {
  PosixFs fs;
  for (const std::string& name : fs.list(folder)) {
    int owner = 0;
    const char* digits = name.data() + std::string_view("rank-").size();
    if (!name.starts_with("rank-")) continue;
    std::from_chars(digits, name.data() + name.size(), owner);
    if (owner == rank || owner >= ranks) fs.remove_file(join_path(folder, name));
  }
}

Result<std::optional<CheckpointId>> write_surviving_copies(Communicator& world,
                                                           CheckpointStore& store,
                                                           const std::string& folder,
                                                           const CheckpointMeta& expected) try {
  const PosixFs fs;
  std::vector<Copy> mine;
  for (int index = 0; !folder.empty() && index < kMostCopies; ++index) {
    if (auto copy = read_note(fs, folder, world.rank(), index, expected)) {
      mine.push_back(std::move(*copy));
    }
  }
  const std::int64_t step = newest_common(world, mine);
  if (step == kNoStep) return std::optional<CheckpointId>();
  const auto copy =
      std::find_if(mine.begin(), mine.end(), [&](const Copy& c) { return c.step == step; });
  const std::int64_t there = newest_on_disk(world, store);
  if (there >= step || there < copy->committed) return std::optional<CheckpointId>();
  return write_copy(world, store, *copy);
} catch (const Error& error) {
  return error;
}

}  // namespace fourfold
