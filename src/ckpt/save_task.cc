#include "ckpt/save_task.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/fault_point.h"
#include "ckpt/agree.h"
#include "ckpt/catalog.h"
#include "ckpt/file_names.h"

namespace fourfold {
namespace {

/// What rank 0 writes beside the tensors, at most, apart from the manifest's lines.
constexpr std::int64_t kSpareBytes = 64 << 10;
constexpr std::int64_t kManifestLineBytes = 256;
/// A stage that takes this long is worth a word, and again after twice the time.
constexpr double kSlowSeconds = 60;
constexpr std::int64_t kNanoseconds = 1'000'000'000;

std::int64_t to_nanoseconds(double seconds) {
  return static_cast<std::int64_t>(seconds * static_cast<double>(kNanoseconds));
}

double to_seconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / static_cast<double>(kNanoseconds);
}

/// The folder, and room for what is to come.
CheckpointId prepare_folder(Fs& fs, const std::string& dir, CheckpointId id, std::int64_t bytes) {
  fs.make_directories(dir);
  collect_garbage(fs, dir);  // What it could not decide on, retention tells.
  const std::int64_t free = fs.free_bytes(dir);
  if (free < bytes) throw fs_error(ENOSPC, "save a checkpoint in", dir, bytes, free);
  while (fs.exists(join_path(dir, id.folder()))) ++id.incarnation;
  fs.make_directories(join_path(dir, id.folder()));
  return id;
}

std::int64_t bytes_wanted(const SaveContent& content, const CheckpointMeta& meta) {
  std::size_t lines = content.tensors.size() + 2 * static_cast<std::size_t>(meta.grid.size());
  for (const ReferredCheckpoint& r : content.referred) lines += 1 + r.files.size();
  return content.bytes + kSpareBytes + static_cast<std::int64_t>(meta.config_toml.size()) +
         kManifestLineBytes * static_cast<std::int64_t>(lines);
}

/// As ranks tell each other of their files; a size of 0: there is no such file.
std::vector<std::int64_t> to_numbers(const RankRecords& records) {
  const FileRecord &dense = records.dense, expert = records.expert.value_or(FileRecord());
  return {dense.size,  dense.header_crc,  dense.file_crc,
          expert.size, expert.header_crc, expert.file_crc};
}

FileRecord from_numbers(std::string name, std::span<const std::int64_t> numbers) {
  return {std::move(name), numbers[0], static_cast<std::uint32_t>(numbers[1]),
          static_cast<std::uint32_t>(numbers[2])};
}

const char* doing(int stage) {
  constexpr const char* kDoing[] = {"preparing", "writing",
                                    "committing, or removing older ones than,",
                                    "removing what is left of"};
  return kDoing[stage];
}

}  // namespace

SaveTask::SaveTask(Fs& fs, std::string dir, int rank, long passage, CheckpointMeta meta,
                   SaveContent content, WriteFiles write, const SaveOptions& options, Log log)
    : fs_(fs),
      dir_(std::move(dir)),
      rank_(rank),
      passage_(passage),
      meta_(std::move(meta)),
      content_(std::move(content)),
      write_(std::move(write)),
      options_(options),
      log_(std::move(log)) {
  report_.id = {meta_.step, options_.incarnation};
  begin(Stage::kPrepare, rank_ == 0, [this] {
    fault_point("ckpt.prepare", rank_, passage_);
    report_.id = prepare_folder(fs_, dir_, report_.id, bytes_wanted(content_, meta_));
  });
}

std::string SaveTask::folder() const { return join_path(dir_, report_.id.folder()); }

void SaveTask::begin(Stage stage, bool mine, std::function<void()> work) {
  stage_ = stage;
  stage_began_ = SteadyClock().seconds();
  slow_after_ = kSlowSeconds;
  if (mine) job_ = std::make_unique<BackgroundJob>(std::move(work));
}

bool SaveTask::advance(Communicator& world, std::chrono::milliseconds patience) {
  if (stage_ == Stage::kOver) return true;
  // The least of the ranks that still work, or none; and whether one has waited for too long.
  constexpr std::int32_t kNobody = std::numeric_limits<std::int32_t>::max();
  const bool late = options_.timeout_seconds > 0 && stage_seconds() > options_.timeout_seconds;
  std::int32_t least[] = {ended_within(patience) ? kNobody : rank_, late ? 0 : 1};
  world.all_reduce({least, 2, DType::kI32}, ReduceOp::kMin).wait_host();
  if (least[0] != kNobody && least[1] == 0) {
    throw Error(ErrorKind::kData,
                fmt::format("{} the checkpoint of step {} is given up: rank {} has not ended in "
                            "{:.0f} s",
                            doing(static_cast<int>(stage_)), meta_.step.value, least[0],
                            options_.timeout_seconds),
                "look at its disk; checkpoint.timeout_seconds is the limit");
  }
  if (least[0] != kNobody) {
    say_if_slow(least[0]);
    return false;
  }
  const auto failed = agree(world, job_ ? job_->error() : std::nullopt);
  if (job_) cpu_seconds_ += job_->cpu_seconds();
  job_.reset();
  next(world, failed);
  return stage_ == Stage::kOver;
}

void SaveTask::finish(Communicator& world) {
  constexpr std::chrono::milliseconds kShortest{1}, kLongest{500};
  std::chrono::milliseconds patience = kShortest;
  while (!advance(world, patience)) patience = std::min(patience * 2, kLongest);
}

void SaveTask::next(Communicator& world, std::optional<Error> failed) {
  const Stage ended = stage_;
  stage_ = Stage::kOver;
  if (ended == Stage::kCleanUp) {
    // What cannot be removed now is no checkpoint, and a later save removes it.
    if (failed && rank_ == 0) log_.warning("{}", failed->what());
  } else if (failed && ended == Stage::kPrepare) {
    report_.error = failed;  // There is no folder yet, or an empty one that a later save removes.
  } else if (failed) {
    begin_clean_up(*failed);
  } else if (ended == Stage::kPrepare) {
    begin_write(world);
  } else if (ended == Stage::kWrite) {
    begin_commit(world);
  } else {
    report_.retention_error = agree(world, retention_error_);
  }
  if (stage_ != Stage::kOver) return;
  const std::int64_t mine = to_nanoseconds(cpu_seconds_);
  for (std::int64_t each : gather_numbers(world, {&mine, 1})) {
    report_.cpu_seconds += to_seconds(each);
  }
}

void SaveTask::begin_write(Communicator& world) {
  const auto first = broadcast_numbers(world, {report_.id.incarnation, meta_.step.value});
  std::optional<Error> other;
  if (first[1] != meta_.step.value) {
    other = Error(ErrorKind::kInternal,
                  fmt::format("saves step {} where rank 0 saves {}", meta_.step.value, first[1]));
  }
  if (const auto failed = agree(world, other)) return begin_clean_up(*failed);
  report_.id.incarnation = static_cast<int>(first[0]);
  begin(Stage::kWrite, /*mine=*/true, [this] {
    fault_point("ckpt.write", rank_, passage_);
    const double began = SteadyClock().seconds();
    records_ = write_(folder());
    write_seconds_ = SteadyClock().seconds() - began;
  });
}

void SaveTask::begin_commit(Communicator& world) {
  std::vector<std::int64_t> mine = to_numbers(records_);
  mine.push_back(to_nanoseconds(write_seconds_));
  const auto all = gather_numbers(world, mine);
  manifest_ = {report_.id, meta_, {}, std::move(content_.tensors), std::move(content_.referred)};
  for (const std::size_t i : content_.taken) manifest_.tensors[i].version = report_.id;
  std::vector<FileRecord> experts;
  for (int r = 0; r < world.size(); ++r) {
    const auto numbers = std::span(all).subspan(static_cast<std::size_t>(r) * mine.size());
    manifest_.files.push_back(from_numbers(dense_file_name(r), numbers));
    const FileRecord theirs = from_numbers(expert_file_name(r), numbers.subspan(3));
    if (theirs.size > 0) experts.push_back(theirs);
    report_.bytes += manifest_.files.back().size + theirs.size;
    report_.write_seconds = std::max(report_.write_seconds, to_seconds(numbers[mine.size() - 1]));
  }
  manifest_.files.insert(manifest_.files.end(), experts.begin(), experts.end());
  begin(Stage::kCommit, rank_ == 0, [this] {
    fault_point("ckpt.commit", rank_, passage_);
    commit_checkpoint(fs_, dir_, manifest_, meta_.config_toml);
    fault_point("ckpt.committed", rank_, passage_);
    apply_retention();
  });
}

void SaveTask::apply_retention() {
  if (options_.retention.keep_latest == 0) return;
  fault_point("ckpt.retain", rank_, passage_);
  try {
    // The checkpoint is there all the same.
    retention_error_ = remove_older(fs_, dir_, options_.retention);
  } catch (const Error& error) {
    retention_error_ = error;
  } catch (const std::exception& error) {
    retention_error_ = Error(ErrorKind::kInternal, error.what());
  }
}

void SaveTask::begin_clean_up(const Error& error) {
  report_.error = error;
  begin(Stage::kCleanUp, rank_ == 0, [this] {
    // A commit may fail after its last rename: then this is the newest checkpoint, and whole.
    if (read_catalog(fs_, dir_).current == report_.id) return;
    remove_checkpoint(fs_, dir_, report_.id.folder());
  });
}

double SaveTask::stage_seconds() const { return SteadyClock().seconds() - stage_began_; }

void SaveTask::say_if_slow(std::int32_t slowest_rank) {
  const double seconds = stage_seconds();
  if (rank_ != 0 || seconds < slow_after_) return;
  slow_after_ *= 2;
  log_.warning("{} the checkpoint of step {} takes {:.0f} s so far; rank {} has not ended",
               doing(static_cast<int>(stage_)), meta_.step.value, seconds, slowest_rank);
}

}  // namespace fourfold
