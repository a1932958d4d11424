#include "ckpt/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/fault_point.h"
#include "ckpt/agree.h"

namespace fourfold {
namespace {

/// Between two looks at the other ranks while nothing else is to be done.
constexpr std::chrono::milliseconds kPatience{100};

/// Adds the time of its life, to the timeline as well.
class HeldTime {
 public:
  HeldTime(Timeline& timeline, const char* what, const Clock& clock, double& total)
      : span_(timeline, TimelineSpan::Kind::kCheckpoint, what),
        clock_(clock),
        total_(total),
        began_(clock.seconds()) {}
  HeldTime(const HeldTime&) = delete;
  HeldTime& operator=(const HeldTime&) = delete;
  ~HeldTime() { total_ += clock_.seconds() - began_; }

 private:
  TimedSpan span_;
  const Clock& clock_;
  double& total_;
  double began_;
};

}  // namespace

/// A state at a step boundary, being copied or copied to a buffer.
struct CheckpointEngine::Snapshot {
  CheckpointMeta meta;
  SaveSelection selection;
  int buffer = 0;
  double held_before = 0;
  RankRecords records;
  double copy_seconds = 0;
  double others_cpu_seconds = 0;        ///< Of threads of the copy besides the job's own.
  bool outlives = false;                ///< The copy is a file that the next start would find.
  std::unique_ptr<BackgroundJob> copy;  // Last: it uses the members above.
};

CheckpointEngine::CheckpointEngine(Communicator& world, CheckpointStore& store,
                                   std::vector<StateTensor> state, EngineOptions options, Log log)
    : world_(world),
      store_(store),
      options_(std::move(options)),
      log_(std::move(log)),
      agreement_(agree_on_save(world, state).value()),
      folder_(private_copies_folder(options_.memory_dir, store.run_id(), store.dir())),
      newest_(std::exchange(options_.base, std::nullopt)),
      origin_{store.run_id(), std::to_string(broadcast_numbers(world, {draw_number()})[0]),
              newest_ ? timeline_name(newest_->id, newest_->meta) : "",
              newest_ ? std::optional(newest_->id) : std::nullopt} {
  // A rank that cannot remove its old copies cannot make new ones either: nothing is lost with it.
  const auto failed = run_together(world, [&] {
    if (!folder_.empty()) remove_copies(memory_, folder_, world.rank(), world.size());
  });
  if (failed) folder_.clear();
  if (options_.async && !options_.memory_dir.empty() && folder_.empty()) {
    said_lost_ = true;
    log_.warning("{} cannot be used{}: copies of the state will not outlive this process",
                 options_.memory_dir, failed ? fmt::format(" ({})", failed->what()) : "");
  }
}

CheckpointEngine::~CheckpointEngine() = default;

int CheckpointEngine::free_buffer() const {
  std::array<bool, kCopies> used{};
  for (const auto& snapshot : {waiting_, writing_, committed_}) {
    if (snapshot) used[static_cast<std::size_t>(snapshot->buffer)] = true;
  }
  const auto free = std::find(used.begin(), used.end(), false);
  FF_CHECK(free != used.end(), "all {} buffers are in use", kCopies);
  return static_cast<int>(free - used.begin());
}

std::shared_ptr<CheckpointEngine::Snapshot> CheckpointEngine::begin_copy(
    const CheckpointMeta& meta, const SaveSelection& selection) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->meta = meta;
  snapshot->selection = selection;
  snapshot->buffer = free_buffer();
  snapshot->held_before = held_seconds_;
  Snapshot& s = *snapshot;
  s.meta.session = origin_.session;
  s.copy = std::make_unique<BackgroundJob>([this, &s, passage = ++snapshots_, origin = origin_] {
    fault_point("ckpt.snapshot", world_.rank(), passage);
    const TimedSpan span(world_.timeline(), TimelineSpan::Kind::kCheckpoint, "copy", {},
                         "snapshot");
    copy(s, origin);
  });
  return snapshot;
}

void CheckpointEngine::copy(Snapshot& s, const CopyOrigin& origin) {
  const int rank = world_.rank();
  const double began = clock_.seconds();
  const RankContent content{rank, s.meta.step, agreement_.dense,
                            selected_regions(agreement_, s.selection)};
  SnapshotBuffer& buffer = buffers_[static_cast<std::size_t>(s.buffer)];
  const std::string path = folder_.empty() ? "" : copy_path(folder_, rank, s.buffer);
  if (!path.empty()) forget_copy(memory_, path);
  buffer.reserve(rank_image_bytes(content), path);
  // As many threads as compute: a single one would hold up one of those, and the others would wait
  // for it at the end of every kernel.
  WorkShare share(s.meta.intra_op_threads);
  s.records = fill_rank_image(content, buffer.data(), share);
  s.others_cpu_seconds = share.others_cpu_seconds();
  s.copy_seconds = clock_.seconds() - began;
  if (buffer.path().empty()) return;
  try {
    describe_copy(memory_, path, origin, {s.meta.step, options_.save.incarnation}, s.meta,
                  s.records, agreement_, s.selection);
    s.outlives = true;
  } catch (const Error&) {
    // The next start will not know the copy; this checkpoint is as good.
  }
}

void CheckpointEngine::begin_write(std::shared_ptr<Snapshot> snapshot) {
  Snapshot& s = *snapshot;
  task_ = begin_task(s.meta, s.selection, s.held_before, [this, &s](const std::string& folder) {
    if (const auto failed = s.copy->error()) throw *failed;
    const TimedSpan span(world_.timeline(), TimelineSpan::Kind::kCheckpoint, "write", {},
                         "persist");
    write_rank_image(store_.fs(), folder, s.records,
                     buffers_[static_cast<std::size_t>(s.buffer)].data());
    return s.records;
  });
  if (task_) writing_ = std::move(snapshot);
}

std::unique_ptr<SaveTask> CheckpointEngine::begin_task(const CheckpointMeta& meta,
                                                       const SaveSelection& selection,
                                                       double held_before,
                                                       SaveTask::WriteFiles write) {
  auto content = save_content(agreement_, selection, newest());
  if (content) {
    return store_.begin_save(world_.rank(), meta, std::move(content).value(), std::move(write),
                             options_.save);
  }
  // Every rank finds the same.
  EngineReport report;
  report.save.id = {meta.step, options_.save.incarnation};
  report.save.error = content.error();
  report.held_seconds = -held_before;
  reports_.push_back(std::move(report));
  return nullptr;
}

void CheckpointEngine::save(const CheckpointMeta& meta, const SaveSelection& selection) {
  const HeldTime held(world_.timeline(), "checkpoint: save", clock_, held_seconds_);
  agree_on_selection(world_, agreement_, selection).value();
  if (!options_.async) return save_and_wait(meta, selection);
  wait_for_copy();                      // Of a state that nobody changed since it was saved.
  while (waiting_) advance(kPatience);  // Two are on their way: the disk sets the pace.
  copying_ = begin_copy(meta, selection);
  if (task_) {
    waiting_ = copying_;
  } else {
    begin_write(copying_);
  }
}

void CheckpointEngine::save_and_wait(CheckpointMeta meta, const SaveSelection& selection) {
  const double held_before = held_seconds_;
  meta.session = origin_.session;
  const RankContent content{world_.rank(), meta.step, agreement_.dense,
                            selected_regions(agreement_, selection)};
  task_ = begin_task(meta, selection, held_before, [&](const std::string& folder) {
    return write_rank_files(store_.fs(), folder, content);
  });
  if (!task_) return;
  task_->finish(world_);
  reports_.push_back({task_->report(), /*copy_seconds=*/0, -held_before});
  if (!task_->report().error) newest_ = task_->manifest();
  task_.reset();
}

void CheckpointEngine::before_update() {
  if (!copying_ && !task_) return;
  const HeldTime held(world_.timeline(), "checkpoint: before the update", clock_, held_seconds_);
  wait_for_copy();
  if (task_) advance(std::chrono::milliseconds(0));
}

void CheckpointEngine::wait_for_copy() {
  if (!copying_) return;
  copying_->copy->wait();
  copying_.reset();
}

void CheckpointEngine::boundary() {
  if (!task_) return;
  const HeldTime held(world_.timeline(), "checkpoint: boundary", clock_, held_seconds_);
  advance(std::chrono::milliseconds(0));
}

void CheckpointEngine::advance(std::chrono::milliseconds patience) {
  if (!task_->advance(world_, patience)) return;
  end_write();
  if (waiting_) begin_write(std::exchange(waiting_, nullptr));
}

void CheckpointEngine::end_write() {
  SaveReport report = task_->report();
  const double of_copy = writing_->copy->cpu_seconds() + writing_->others_cpu_seconds;
  const auto nanoseconds = static_cast<std::int64_t>(of_copy * 1e9);
  std::int64_t sum = nanoseconds;
  world_.all_reduce({&sum, 1, DType::kI64}, ReduceOp::kSum).wait_host();
  report.cpu_seconds += static_cast<double>(sum) * 1e-9;
  reports_.push_back({report, writing_->copy_seconds, -writing_->held_before});
  if (!report.error) {
    committed_ = writing_;
    newest_ = task_->manifest();
    origin_.committed = newest_->id;
  }
  if (!folder_.empty() && !writing_->outlives && !std::exchange(said_lost_, true)) {
    log_.warning("{} has no room for copies of the state: they will not outlive this process",
                 options_.memory_dir);
  }
  writing_.reset();
  task_.reset();
}

void CheckpointEngine::drain() {
  const HeldTime held(world_.timeline(), "checkpoint: until written", clock_, held_seconds_);
  wait_for_copy();
  while (task_) advance(kPatience);
}

std::vector<EngineReport> CheckpointEngine::take_reports() {
  for (EngineReport& report : reports_) report.held_seconds += held_seconds_;
  return std::exchange(reports_, {});
}

double CheckpointEngine::take_held_seconds() {
  return held_seconds_ - std::exchange(held_seconds_taken_, held_seconds_);
}

bool CheckpointEngine::ends_within(std::chrono::milliseconds time) {
  for (const auto& snapshot : {copying_, waiting_, writing_}) {
    if (snapshot && !snapshot->copy->ended_within(time)) return false;
  }
  return !task_ || task_->ended_within(time);
}

void CheckpointEngine::forget_copies() {
  if (folder_.empty()) return;
  try {
    remove_copies(memory_, folder_, world_.rank(), world_.size());
  } catch (const Error& error) {
    log_.warning("{}", error.what());  // All is on the disk: no reason to fail.
  }
  std::error_code not_empty;  // Before the last rank's call.
  std::filesystem::remove(folder_, not_empty);
}

}  // namespace fourfold
