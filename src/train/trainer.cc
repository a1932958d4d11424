#include "train/trainer.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "base/fault_point.h"
#include "ckpt/snapshot_buffer.h"
#include "ckpt/surviving_copies.h"
#include "comm/incident.h"
#include "device/intra_op_threads.h"
#include "spec/counts.h"
#include "spec/model_identity.h"
#include "spec/run_config.h"
#include "train/model_text.h"
#include "train/peak_rate.h"
#include "train/step_tracer.h"

namespace fourfold {
namespace {

std::int64_t read_scalar(const CheckpointMeta& meta, const char* name, std::int64_t otherwise) {
  const auto found = meta.scalars.find(name);
  if (found == meta.scalars.end()) return otherwise;
  std::from_chars(found->second.data(), found->second.data() + found->second.size(), otherwise);
  return otherwise;
}

/// A Sampler or WindowReader as the model reads samples.
template <class Source>
SampleReader reader_of(const Source& source) {
  return [&source](std::int64_t sample, std::int64_t* inputs, std::int64_t* targets) {
    source.fill(sample, inputs, targets);
  };
}

}  // namespace

Trainer::Trainer(const TrainerShared& shared, RunOutput* output, Communicator& world)
    : shared_(shared),
      output_(output),
      run_(shared.run),
      world_(world),
      model_(run_, world),
      store_(fs_, run_.dir + "/checkpoints", log()),
      peak_flops_(measure_peak_flops(model_.context().compute, world)) {
  if (run_.checkpoint.mode == "off") return;
  std::optional<Loaded> loaded = resume();
  const CheckpointSpec& spec = run_.checkpoint;
  EngineOptions options;
  options.async = spec.async;
  options.memory_dir = spec.memory_dir;
  options.save = {{spec.keep_latest, spec.keep_every}, spec.timeout_seconds};
  if (loaded) {
    options.save.incarnation = loaded->incarnation;
    options.base = std::move(loaded->manifest);
  }
  engine_.emplace(world_, store_, model_.state(), std::move(options), log());
}

Log Trainer::log() const { return output_ ? output_->log() : Log(); }

void Trainer::say(const std::string& text) {
  if (output_) output_->say(text);
}

CheckpointMeta Trainer::meta() const {
  CheckpointMeta meta;
  meta.step = Step(step_);
  meta.run_id = run_.dir;
  meta.model = model_name(run_.model);
  meta.model_hash = model_hash(run_.model);
  meta.grid = run_.parallel.grid;
  meta.order = run_.parallel.order;
  meta.zero = run_.memory.zero;
  meta.seed = run_.seed;
  meta.next_sample = next_sample_;
  meta.intra_op_threads = intra_op_threads();
  meta.scalars = {{"updates", std::to_string(model_.updates())},
                  {"tokens", std::to_string(tokens_)}};
  meta.config_toml = resolved_toml(run_);
  return meta;
}

void Trainer::check_identity(const CheckpointMeta& found) {
  if (found.model_hash != model_hash(run_.model)) {
    throw Error(ErrorKind::kData,
                fmt::format("{} holds a checkpoint of another model ({}), this run's is {}",
                            store_.dir(), found.model, model_name(run_.model)),
                "give another run folder (run.dir or --run-dir), or the model as it was: the "
                "checkpoint's config.toml has it");
  }
  if (found.seed != run_.seed) {
    say(fmt::format("the checkpoint was made with seed {}, this run goes on with {}", found.seed,
                    run_.seed));
  }
  if (found.grid != run_.parallel.grid || found.intra_op_threads != intra_op_threads()) {
    say(fmt::format(
        "saved on {} with {} threads a rank, going on on {} with {}: the same model, "
        "though not bit for bit",
        found.grid.name(), found.intra_op_threads, run_.parallel.grid.name(), intra_op_threads()));
  }
}

std::optional<Loaded> Trainer::resume() {
  store_.check_shared_folder(world_).value();
  rescue_copies();
  std::vector<StateTensor> state = model_.state();
  std::optional<Loaded> loaded = store_.load_latest(world_, state).value();
  if (!loaded) return std::nullopt;
  const CheckpointMeta& found = loaded->meta;
  check_identity(found);
  step_ = saved_step_ = found.step.value;
  next_sample_ = found.next_sample;
  tokens_ = read_scalar(found, "tokens", next_sample_ * run_.train.seq_len);
  model_.restored(state, read_scalar(found, "updates", step_));
  say(fmt::format("resumed at step {} from {} (saved on {})", step_, loaded->id.folder(),
                  found.grid.name()));
  return loaded;
}

void Trainer::rescue_copies() {
  PosixFs memory;
  const std::string folder =
      private_copies_folder(run_.checkpoint.memory_dir, store_.run_id(), store_.dir());
  const auto written = write_surviving_copies(world_, store_, memory, folder, meta());
  if (!written) {
    if (written.error().kind() == ErrorKind::kCommunication) throw written.error();
    throw Error(written.error().kind(),
                fmt::format("the newest state is in memory only ({}), and cannot be written: {}",
                            folder, written.error().what()),
                written.error().hint());
  }
  if (!written.value()) return;
  say(fmt::format("{} was still in memory when the run ended, and is written now",
                  written.value()->folder()));
}

bool Trainer::due(std::int64_t interval) const { return interval > 0 && step_ % interval == 0; }

void Trainer::one_step() {
  world_.set_step(Step(step_));
  fault_point("step", world_.rank(), step_ + 1);
  const double begin = shared_.clock.seconds();
  const double loss = model_.compute_gradients(step_, next_sample_, reader_of(shared_.train));
  if (engine_) engine_->before_update();
  const StepResult result = model_.apply_gradients(step_, loss);
  const double seconds = shared_.clock.seconds() - begin;
  ++step_;
  next_sample_ += run_.train.global_batch;
  tokens_ += run_.train.global_batch * run_.train.seq_len;
  if (output_) report(result, seconds);
}

void Trainer::report(const StepResult& result, double seconds) {
  const std::int64_t step_tokens = run_.train.global_batch * run_.train.seq_len;
  StepRecord record;
  record.step = step_;
  record.loss = result.loss;
  record.grad_norm = result.grad_norm;
  record.lr = result.lr;
  record.tokens = tokens_;
  record.tokens_per_second = static_cast<double>(step_tokens) / seconds;
  record.step_seconds = seconds;
  record.mfu = record.tokens_per_second * model_flops_per_token(run_.model, run_.train.seq_len) /
               peak_flops_;
  record.skipped = result.skipped;
  if (engine_) record.checkpoint_seconds = engine_->take_held_seconds();
  const MoeSpec& moe = run_.model.moe;
  if (moe.experts == 0) return output_->step(record);
  const auto routers = router_records(moe, model_.routers().tally(), step_, step_tokens);
  const bool forced = forced_balance(run_.model);
  record.experts = {result.aux_loss, result.z_loss, worst_load(routers), forced};
  output_->step(record);
  if (step_ == run_.train.steps || due(run_.train.log_interval)) output_->routers(routers, forced);
}

void Trainer::evaluate() {
  if (!shared_.valid || evaluated_step_ == step_) return;
  const std::int64_t per_batch =
      run_.train.micro_batch * run_.parallel.grid.z * run_.parallel.grid.data;
  std::int64_t samples = shared_.valid->windows();
  if (run_.train.eval_batches > 0) samples = std::min(samples, run_.train.eval_batches * per_batch);
  const double loss = model_.evaluate(samples, reader_of(*shared_.valid));
  evaluated_step_ = step_;
  if (output_) output_->validation({step_, loss, tokens_});
}

void Trainer::save() {
  if (!engine_ || saved_step_ == step_) return;
  engine_->save(meta());
  saved_step_ = step_;
}

void Trainer::hear(const EngineReport& report, bool last) {
  const SaveReport& save = report.save;
  if (save.error && (last || run_.checkpoint.on_failure == "stop")) throw *save.error;
  if (!output_) return;
  if (save.error) {
    output_->log().warning("the checkpoint of step {} is not written: {}; training goes on",
                           save.id.step.value, save.error->what());
    return;
  }
  if (save.retention_error) output_->log().warning("{}", save.retention_error->what());
  output_->checkpoint({save.id.step.value, save.id.folder(), save.bytes, report.copy_seconds,
                       save.write_seconds, report.held_seconds, save.cpu_seconds});
}

void Trainer::follow_checkpoints() {
  if (!engine_) return;
  engine_->boundary();
  for (const EngineReport& report : engine_->take_reports()) hear(report, /*last=*/false);
}

void Trainer::finish_checkpoints() {
  if (!engine_) return;
  engine_->drain();
  for (const EngineReport& report : engine_->take_reports()) {
    hear(report, /*last=*/report.save.id.step.value == saved_step_);
  }
  engine_->forget_copies();
}

Trainer::Stop Trainer::agreed_stop() {
  const double budget = run_.train.time_budget_seconds;
  auto stop = Stop::kNone;
  if (budget > 0 && shared_.clock.seconds() - shared_.started > budget) stop = Stop::kBudget;
  if (shared_.signals.received() != 0) stop = Stop::kSignal;
  auto wanted = static_cast<std::int64_t>(stop);
  world_.all_reduce({&wanted, 1, DType::kI64}, ReduceOp::kMax).wait_host();
  return static_cast<Stop>(wanted);
}

int Trainer::stop_early(Stop stop) {
  save();
  finish_checkpoints();
  say(fmt::format("stopped at step {} of {} {}; {}", step_, run_.train.steps,
                  stop == Stop::kSignal ? "after a signal" : "as the time budget is spent",
                  run_.checkpoint.mode == "off" ? "nothing was saved (checkpoint.mode = \"off\")"
                                                : "saved: run the same command to go on"));
  return static_cast<int>(ErrorKind::kInterrupted);
}

int Trainer::train() try { return train_to_the_end(); } catch (...) {
  // Before this rank waits for its disk: the others wait for this rank.
  const auto failure = std::current_exception();
  world_.abort(reason_of(failure));
  constexpr std::chrono::seconds kGrace{30};
  if (engine_ && !engine_->ends_within(kGrace)) {
    end_process(failure, fmt::format("rank {}'s disk does not answer", world_.rank()));
  }
  throw;
}

int Trainer::train_to_the_end() {
  StepTracer tracer(run_.dir, world_, shared_.trace_steps, step_, run_.train.steps);
  while (step_ < run_.train.steps) {
    const std::int64_t step = step_;
    tracer.begin(step);
    one_step();
    const bool last = step_ == run_.train.steps;
    follow_checkpoints();
    if (last || due(run_.train.eval_interval)) evaluate();
    if (last || due(run_.checkpoint.save_interval)) save();
    tracer.end(step, log());
    const Stop stop = agreed_stop();
    if (stop == Stop::kNone || last) continue;
    tracer.finish(log());
    return stop_early(stop);
  }
  finish_checkpoints();
  return 0;
}

}  // namespace fourfold
