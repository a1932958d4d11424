#include "ckpt/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/fault_point.h"
#include "ckpt/agree.h"
#include "ckpt/shard_image.h"

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
  int buffer = 0;
  double held_before = 0;
  FileRecord record;
  double copy_seconds = 0;
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
      origin_{store.run_id(), std::to_string(broadcast_numbers(world, {draw_number()})[0]),
              options_.base, options_.committed} {
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
    const CheckpointMeta& meta) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->meta = meta;
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
  const auto metadata = tensor_file_metadata(s.meta.step, rank);
  SnapshotBuffer& buffer = buffers_[static_cast<std::size_t>(s.buffer)];
  if (!folder_.empty()) forget_copy(memory_, folder_, rank, s.buffer);
  buffer.reserve(tensor_file_bytes(agreement_.sources, metadata),
                 folder_.empty() ? "" : copy_path(folder_, rank, s.buffer));
  s.record = fill_image(agreement_.sources, metadata, dense_file_name(rank), buffer.data());
  s.copy_seconds = clock_.seconds() - began;
  if (buffer.path().empty()) return;
  try {
    describe_copy(memory_, folder_, rank, s.buffer, origin, s.meta, s.record, agreement_.tensors);
    s.outlives = true;
  } catch (const Error&) {
    // The next start will not know the copy; this checkpoint is as good.
  }
}

void CheckpointEngine::begin_write(std::shared_ptr<Snapshot> snapshot) {
  writing_ = std::move(snapshot);
  Snapshot& s = *writing_;
  task_ = store_.begin_save(
      world_.rank(), s.meta, agreement_,
      [this, &s](const std::string& folder) {
        if (const auto failed = s.copy->error()) throw *failed;
        const TimedSpan span(world_.timeline(), TimelineSpan::Kind::kCheckpoint, "write", {},
                             "persist");
        write_image(store_.fs(), folder, s.record,
                    buffers_[static_cast<std::size_t>(s.buffer)].data());
        return s.record;
      },
      options_.save);
}

void CheckpointEngine::save(const CheckpointMeta& meta) {
  const HeldTime held(world_.timeline(), "checkpoint: save", clock_, held_seconds_);
  if (!options_.async) return save_and_wait(meta);
  wait_for_copy();                      // Of a state that nobody changed since it was saved.
  while (waiting_) advance(kPatience);  // Two are on their way: the disk sets the pace.
  copying_ = begin_copy(meta);
  if (task_) {
    waiting_ = copying_;
  } else {
    begin_write(copying_);
  }
}

void CheckpointEngine::save_and_wait(CheckpointMeta meta) {
  const double held_before = held_seconds_;
  const int rank = world_.rank();
  meta.session = origin_.session;
  task_ = store_.begin_save(
      rank, meta, agreement_,
      [this, step = meta.step, rank](const std::string& folder) {
        return write_tensor_file(store_.fs(), folder, dense_file_name(rank), agreement_.sources,
                                 tensor_file_metadata(step, rank));
      },
      options_.save);
  task_->finish(world_);
  reports_.push_back({task_->report(), /*copy_seconds=*/0, -held_before});
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
  const std::int64_t nanoseconds = static_cast<std::int64_t>(writing_->copy->cpu_seconds() * 1e9);
  std::int64_t sum = nanoseconds;
  world_.all_reduce({&sum, 1, DType::kI64}, ReduceOp::kSum).wait_host();
  report.cpu_seconds += static_cast<double>(sum) * 1e-9;
  reports_.push_back({report, writing_->copy_seconds, -writing_->held_before});
  if (!report.error) {
    committed_ = writing_;
    origin_.committed = writing_->meta.step.value;
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
