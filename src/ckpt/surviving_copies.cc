#include "ckpt/surviving_copies.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>
#include <span>

#include "ckpt/agree.h"
#include "ckpt/catalog.h"
#include "ckpt/file_names.h"
#include "ckpt/rank_files.h"
#include "ckpt/snapshot_buffer.h"

namespace fourfold {
namespace {

// What a note says beside a checkpoint's manifest, among its scalars.
constexpr const char* kRun = "copy.run";
constexpr const char* kBase = "copy.base";
constexpr const char* kCommitted = "copy.committed";
constexpr const char* kConfig = "copy.config";
constexpr const char* kLeft = "copy.left";  ///< How many tensors it leaves to older checkpoints.
constexpr std::int64_t kNone = -1;

std::string note_path(const std::string& copy) { return copy + ".json"; }

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
  Manifest note;  ///< Of what is in the copy alone: without references.
  std::int64_t left = 0;
  RankRecords records() const {
    RankRecords records{note.files[0], std::nullopt};
    if (note.files.size() > 1) records.expert = note.files[1];
    return records;
  }
};

bool are_files_of(int rank, const std::vector<FileRecord>& files) {
  const std::string names[] = {dense_file_name(rank), expert_file_name(rank)};
  return !files.empty() &&
         std::ranges::equal(files, std::span(names).first(std::min(files.size(), std::size(names))),
                            {}, &FileRecord::name);
}

/// A note that cannot be read is none: nobody may stay behind because of it.
std::optional<Copy> read_note(const Fs& fs, const std::string& folder, int rank, int index,
                              const std::string& run, const CheckpointMeta& expected) try {
  const std::string path = copy_path(folder, rank, index);
  if (!fs.exists(note_path(path))) return std::nullopt;
  Copy copy{path, {}, parse_manifest(read_file(fs, note_path(path), kMaxManifestBytes)).value(), 0};
  CheckpointMeta& meta = copy.note.meta;
  copy.origin = {take_scalar(meta, kRun), meta.session, take_scalar(meta, kBase),
                 CheckpointId::parse(take_scalar(meta, kCommitted))};
  copy.left = number(take_scalar(meta, kLeft), 0);
  meta.config_toml = take_scalar(meta, kConfig);
  const bool fits = copy.origin.run == run && meta.model_hash == expected.model_hash &&
                    meta.grid == expected.grid && meta.order == expected.order &&
                    meta.zero == expected.zero && are_files_of(rank, copy.note.files);
  return fits ? std::optional<Copy>(std::move(copy)) : std::nullopt;
} catch (const Error&) {
  return std::nullopt;
}

/// Step, incarnation and session: what tells a copy from another.
constexpr std::size_t kLabelSize = 3;
using Label = std::array<std::int64_t, kLabelSize>;
constexpr Label kNoCopy = {kNone, kNone, kNone};

Label label_of(const Copy& copy) {
  return {copy.note.id.step.value, copy.note.id.incarnation, number(copy.origin.session, kNone)};
}

/// Those that every rank has, newest first.
std::vector<Label> common_copies(Communicator& world, const std::vector<Copy>& mine) {
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < kCopies; ++i) {
    const Label label = i < mine.size() ? label_of(mine[i]) : kNoCopy;
    numbers.insert(numbers.end(), label.begin(), label.end());
  }
  const auto all = gather_numbers(world, numbers);
  std::map<Label, std::set<std::size_t>> ranks;
  for (std::size_t i = 0; i < all.size(); i += kLabelSize) {
    ranks[{all[i], all[i + 1], all[i + 2]}].insert(i / numbers.size());
  }
  std::vector<Label> common;
  for (const auto& [label, holders] : ranks) {
    if (label != kNoCopy && holders.size() == static_cast<std::size_t>(world.size())) {
      common.push_back(label);
    }
  }
  std::ranges::reverse(common);
  return common;
}

/// The newest checkpoint on the disk, where a copy goes on from it; `committed` once was there.
struct Past {
  bool fits = false;
  std::optional<Manifest> newest;
};

Past past_of(const Fs& fs, const std::string& dir, const Copy& copy,
             const std::optional<CheckpointId>& committed) {
  const Catalog catalog = read_catalog(fs, dir);
  if (!catalog.has_history()) return {copy.origin.base.empty() && !committed, std::nullopt};
  // Somebody may have taken the run back to before what was on the disk.
  const auto newest = catalog.newest_committed();
  if (!newest || *newest >= copy.note.id || newest < committed) return {};
  auto manifest = read_manifest(fs, join_path(dir, newest->folder()));
  if (!manifest) return {};
  const bool fits = manifest.value().meta.session == copy.origin.session ||
                    timeline_name(*newest, manifest.value().meta) == copy.origin.base;
  return {fits, std::move(manifest).value()};
}

SaveContent content_of(const Copy& copy) {
  SaveContent content;
  content.tensors = copy.note.tensors;
  for (std::size_t i = 0; i < content.tensors.size(); ++i) {
    if (!content.tensors[i].version) continue;
    content.tensors[i].version.reset();
    content.taken.push_back(i);
  }
  return content;
}

/// Adds what a copy leaves out, as the newest checkpoint on the disk has it.
void add_left_out(const Copy& copy, const std::optional<Manifest>& newest, SaveContent& content) {
  if (copy.left == 0) return;
  std::set<std::string> held;
  for (const ManifestTensor& t : content.tensors) held.insert(t.key());
  std::int64_t added = 0;
  for (std::size_t i = 0; newest && i < newest->tensors.size(); ++i) {
    const ManifestTensor& t = newest->tensors[i];
    if (!t.version || held.contains(t.key())) continue;
    content.tensors.push_back(t);
    ++added;
  }
  if (added != copy.left) {
    throw Error(ErrorKind::kData, copy.path + ": no checkpoint has what it leaves out");
  }
  content.referred = referred_by(content.tensors, *newest);
}

/// Reads a copy, and finds it to be what was copied.
void read_copy(const Fs& fs, const Copy& copy, SnapshotBuffer& buffer) {
  const RankRecords records = copy.records();
  const std::int64_t bytes = rank_image_bytes(records);
  const auto file = fs.open(copy.path);
  if (file->size() < bytes) throw Error(ErrorKind::kData, copy.path + " is cut short");
  buffer.reserve(bytes, /*path=*/"");
  file->read(0, buffer.data(), static_cast<std::size_t>(bytes));
  if (!is_rank_image(records, buffer.data())) {
    throw Error(ErrorKind::kData, copy.path + ": its checksum is wrong");
  }
}

Result<std::optional<CheckpointId>> write_copy(Communicator& world, CheckpointStore& store,
                                               const Copy& copy, SaveContent content,
                                               const SnapshotBuffer& buffer) {
  const RankRecords records = copy.records();
  content.bytes = rank_image_bytes(records);
  world.all_reduce({&content.bytes, 1, DType::kI64}, ReduceOp::kSum).wait_host();
  const auto task = store.begin_save(
      world.rank(), copy.note.meta, std::move(content),
      [&](const std::string& folder) {
        write_rank_image(store.fs(), folder, records, buffer.data());
        return records;
      },
      SaveOptions{.incarnation = copy.note.id.incarnation});
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

void describe_copy(Fs& fs, const std::string& path, const CopyOrigin& origin,
                   const CheckpointId& id, const CheckpointMeta& meta, const RankRecords& records,
                   const SaveAgreement& agreement, const SaveSelection& selection) {
  Manifest note{id, meta, {records.dense}, {}};
  if (records.expert) note.files.push_back(*records.expert);
  for (std::size_t i = 0; i < agreement.tensors.size(); ++i) {
    if (!is_taken(agreement, selection, i)) continue;
    note.tensors.push_back(agreement.tensors[i]);
    if (agreement.rotates[i]) note.tensors.back().version = id;
  }
  note.meta.scalars[kRun] = origin.run;
  note.meta.session = origin.session;
  note.meta.scalars[kBase] = origin.base;
  note.meta.scalars[kCommitted] = origin.committed ? origin.committed->folder() : "";
  note.meta.scalars[kLeft] = std::to_string(agreement.tensors.size() - note.tensors.size());
  note.meta.scalars[kConfig] = meta.config_toml;
  write_file_atomically(fs, note_path(path), manifest_text(note));
}

void forget_copy(Fs& fs, const std::string& path) { fs.remove_file(note_path(path)); }

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
  std::optional<CheckpointId> committed;
  for (const Copy& copy : mine) committed = std::max(committed, copy.origin.committed);
  const auto pass_over = [&](const Error& reason) {
    if (world.rank() != 0) return;
    store.log().warning("a copy in memory is of no use: {}", reason.what());
  };
  for (const Label& label : common_copies(world, mine)) {
    const Copy& copy = *std::ranges::find(mine, label, label_of);
    SaveContent content = content_of(copy);
    std::int64_t wanted = 0;
    const auto unknown = run_on_first(world, [&] {
      const Past past = past_of(store.fs(), store.dir(), copy, committed);
      if (past.fits) add_left_out(copy, past.newest, content);
      wanted = past.fits ? 1 : 0;
    });
    if (unknown) pass_over(*unknown);
    if (unknown || broadcast_numbers(world, {wanted})[0] == 0) continue;
    SnapshotBuffer buffer;
    const auto damaged = run_together(world, [&] { read_copy(memory, copy, buffer); });
    if (!damaged) return write_copy(world, store, copy, std::move(content), buffer);
    pass_over(*damaged);
  }
  return std::optional<CheckpointId>();
} catch (const Error& error) {
  return error;
}

}  // namespace fourfold
