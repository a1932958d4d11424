#include "ckpt/surviving_copies.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/crc32c.h"
#include "ckpt/agree.h"
#include "ckpt/catalog.h"
#include "ckpt/shard_image.h"
#include "ckpt/snapshot_buffer.h"

namespace fourfold {
namespace {

// What a note says beside a checkpoint's manifest, among its scalars.
constexpr const char* kRun = "copy.run";
constexpr const char* kBase = "copy.base";
constexpr const char* kCommitted = "copy.committed";
constexpr const char* kConfig = "copy.config";
constexpr std::int64_t kNone = -1;

std::string note_path(const std::string& folder, int rank, int index) {
  return copy_path(folder, rank, index) + ".json";
}

std::string take_scalar(CheckpointMeta& meta, const char* name) {
  const auto found = meta.scalars.find(name);
  if (found == meta.scalars.end()) return "";
  std::string value = std::move(found->second);
  meta.scalars.erase(found);
  return value;
}

std::int64_t number(const std::string& text, std::int64_t otherwise) {
  std::from_chars(text.data(), text.data() + text.size(), otherwise);
  return otherwise;
}

/// A copy that its note says is whole.
struct Copy {
  std::string path;
  CopyOrigin origin;
  Manifest note;
  std::int64_t step() const { return note.id.step.value; }
  std::int64_t session() const { return number(origin.session, kNone); }
};

/// A note that cannot be read is none: nobody may stay behind because of it.
std::optional<Copy> read_note(const Fs& fs, const std::string& folder, int rank, int index,
                              const std::string& run, const CheckpointMeta& expected) try {
  const std::string path = note_path(folder, rank, index);
  if (!fs.exists(path)) return std::nullopt;
  Copy copy{copy_path(folder, rank, index),
            {},
            parse_manifest(read_file(fs, path, kMaxManifestBytes)).value()};
  CheckpointMeta& meta = copy.note.meta;
  copy.origin = {take_scalar(meta, kRun), meta.session, take_scalar(meta, kBase),
                 number(take_scalar(meta, kCommitted), kNone)};
  meta.config_toml = take_scalar(meta, kConfig);
  const bool fits = copy.origin.run == run && meta.model_hash == expected.model_hash &&
                    meta.grid == expected.grid && meta.order == expected.order &&
                    meta.zero == expected.zero && copy.note.files.size() == 1 &&
                    copy.note.files[0].name == dense_file_name(rank);
  return fits ? std::optional<Copy>(std::move(copy)) : std::nullopt;
} catch (const Error&) {
  return std::nullopt;
}

/// Step and session of each of a rank's copies.
using Labels = std::array<std::int64_t, 2 * kCopies>;

/// Those that every rank has, newest first.
std::vector<std::pair<std::int64_t, std::int64_t>> common_copies(Communicator& world,
                                                                 const std::vector<Copy>& mine) {
  Labels labels;
  labels.fill(kNone);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    labels[2 * i] = mine[i].step();
    labels[2 * i + 1] = mine[i].session();
  }
  const auto all = gather_numbers(world, labels);
  std::vector<std::pair<std::int64_t, std::int64_t>> common;
  for (std::size_t i = 0; i < labels.size(); i += 2) {
    if (labels[i] == kNone) continue;
    bool everywhere = true;
    for (std::size_t rank = 0; rank < all.size(); rank += labels.size()) {
      bool here = false;
      for (std::size_t k = rank; k < rank + labels.size(); k += 2) {
        here = here || (all[k] == labels[i] && all[k + 1] == labels[i + 1]);
      }
      everywhere = everywhere && here;
    }
    if (everywhere) common.emplace_back(labels[i], labels[i + 1]);
  }
  std::sort(common.rbegin(), common.rend());
  return common;
}

/// Whether a copy goes on from the newest checkpoint on the disk, on which that of step `committed`
/// once was.
bool goes_on(const Fs& fs, const std::string& dir, const Copy& copy, std::int64_t committed) {
  const Catalog catalog = read_catalog(fs, dir);
  if (!catalog.has_history()) return copy.origin.base.empty() && committed == kNone;
  // Somebody may have taken the run back to before what was on the disk.
  const auto newest = catalog.newest_committed();
  if (!newest || newest->step.value >= copy.step() || newest->step.value < committed) return false;
  const auto manifest = read_manifest(fs, join_path(dir, newest->folder()));
  if (!manifest) return false;
  return manifest.value().meta.session == copy.origin.session ||
         timeline_name(*newest, manifest.value().meta) == copy.origin.base;
}

/// Reads a copy, and finds it to be what was copied.
void read_copy(const Fs& fs, const Copy& copy, SnapshotBuffer& buffer) {
  const FileRecord& record = copy.note.files[0];
  const auto file = fs.open(copy.path);
  if (file->size() < record.size) throw Error(ErrorKind::kData, copy.path + " is cut short");
  buffer.reserve(record.size, /*path=*/"");
  file->read(0, buffer.data(), static_cast<std::size_t>(record.size));
  if (crc32c(buffer.data(), static_cast<std::size_t>(record.size)) != record.file_crc) {
    throw Error(ErrorKind::kData, copy.path + ": its checksum is wrong");
  }
}

Result<std::optional<CheckpointId>> write_copy(Communicator& world, CheckpointStore& store,
                                               const Copy& copy, const SnapshotBuffer& buffer) {
  const FileRecord& record = copy.note.files[0];
  std::int64_t total = record.size;
  world.all_reduce({&total, 1, DType::kI64}, ReduceOp::kSum).wait_host();
  const SaveAgreement agreement{{}, copy.note.tensors, total};
  const auto task = store.begin_save(world.rank(), copy.note.meta, agreement,
                                     [&](const std::string& folder) {
                                       write_image(store.fs(), folder, record, buffer.data());
                                       return record;
                                     },
                                     /*options=*/{});
  task->finish(world);
  if (task->report().error) return *task->report().error;
  return std::optional<CheckpointId>(task->report().id);
}

}  // namespace

std::string timeline_name(const CheckpointId& id, const CheckpointMeta& meta) {
  return id.folder() + "/" + meta.session;
}

std::string copy_path(const std::string& folder, int rank, int index) {
  return join_path(folder, fmt::format("rank-{:05}.{}.safetensors", rank, index));
}

void describe_copy(Fs& fs, const std::string& folder, int rank, int index, const CopyOrigin& origin,
                   const CheckpointMeta& meta, const FileRecord& record,
                   const std::vector<ManifestTensor>& tensors) {
  Manifest note{{meta.step, 0}, meta, {record}, tensors};
  note.meta.scalars[kRun] = origin.run;
  note.meta.session = origin.session;
  note.meta.scalars[kBase] = origin.base;
  note.meta.scalars[kCommitted] = std::to_string(origin.committed);
  note.meta.scalars[kConfig] = meta.config_toml;
  write_file_atomically(fs, note_path(folder, rank, index), manifest_text(note));
}

void forget_copy(Fs& fs, const std::string& folder, int rank, int index) {
  fs.remove_file(note_path(folder, rank, index));
}

void remove_copies(Fs& fs, const std::string& folder, int rank, int ranks) {
  constexpr std::string_view kPrefix = "rank-";
  for (const std::string& name : fs.list(folder)) {
    if (!name.starts_with(kPrefix)) continue;
    int owner = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), owner);
    if (owner == rank || owner >= ranks) fs.remove_file(join_path(folder, name));
  }
}

Result<std::optional<CheckpointId>> write_surviving_copies(Communicator& world,
                                                           CheckpointStore& store, Fs& memory,
                                                           const std::string& folder,
                                                           const CheckpointMeta& expected) try {
  std::vector<Copy> mine;
  for (int index = 0; !folder.empty() && index < kCopies; ++index) {
    if (auto copy = read_note(memory, folder, world.rank(), index, store.run_id(), expected)) {
      mine.push_back(std::move(*copy));
    }
  }
  std::int64_t committed = kNone;
  for (const Copy& copy : mine) committed = std::max(committed, copy.origin.committed);
  for (const auto& [step, session] : common_copies(world, mine)) {
    const auto copy =
        std::find_if(mine.begin(), mine.end(), [&, step = step, session = session](const Copy& c) {
          return c.step() == step && c.session() == session;
        });
    std::int64_t wanted = 0;
    const auto unknown = run_on_first(
        world, [&] { wanted = goes_on(store.fs(), store.dir(), *copy, committed) ? 1 : 0; });
    if (unknown || broadcast_numbers(world, {wanted})[0] == 0) continue;
    SnapshotBuffer buffer;
    const auto damaged = run_together(world, [&] { read_copy(memory, *copy, buffer); });
    if (!damaged) return write_copy(world, store, *copy, buffer);
    if (world.rank() == 0)
      store.log().warning("a copy in memory is of no use: {}", damaged->what());
  }
  return std::optional<CheckpointId>();
} catch (const Error& error) {
  return error;
}

}  // namespace fourfold
