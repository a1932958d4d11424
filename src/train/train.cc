#include <fmt/core.h>

#include <atomic>
#include <memory>

#include "base/units.h"
#include "comm/incident.h"
#include "data/data_set.h"
#include "device/caching_allocator.h"
#include "spec/run_config.h"
#include "train/commands.h"
#include "train/dry_run.h"
#include "train/launch.h"
#include "train/model_text.h"
#include "train/run_report.h"
#include "train/trainer.h"

namespace fourfold {
namespace {

/// The data of a run, opened and checked before any rank starts.
struct RunData {
  explicit RunData(const RunSpec& run)
      : tokenizer(open_tokenizer(given(run))),
        train_set(open_data_set(run.data.train, tokenizer.get(), run.model.vocab).value()),
        train(train_set.tokens, run.train.seq_len, run.model.vocab, run.seed) {
    if (run.data.valid.empty()) return;
    valid_set = std::make_unique<DataSet>(
        open_data_set(run.data.valid, tokenizer.get(), run.model.vocab).value());
    valid = std::make_unique<WindowReader>(valid_set->tokens, run.train.seq_len, run.model.vocab);
  }

  static const RunSpec& given(const RunSpec& run) {
    if (!run.data.train.empty()) return run;
    throw Error(ErrorKind::kUsage, "data.train is not given",
                "the prefix of token files, as 'fourfold data prepare' writes them");
  }

  static std::unique_ptr<Tokenizer> open_tokenizer(const RunSpec& run) {
    if (run.data.tokenizer.empty()) return nullptr;
    return std::make_unique<Tokenizer>(Tokenizer::open(run.data.tokenizer).value());
  }

  std::unique_ptr<Tokenizer> tokenizer;
  DataSet train_set;
  Sampler train;
  std::unique_ptr<DataSet> valid_set;
  std::unique_ptr<WindowReader> valid;
};

void announce(const RunSpec& run, const Launch& launch, const RunData& data, RunOutput& output) {
  const std::int64_t step_tokens = run.train.global_batch * run.train.seq_len;
  output.say(fmt::format("model {}: {}, {} layers, hidden {}",
                         run.model.preset.empty() ? run.model.family : run.model.preset,
                         parameters_text(run.model), run.model.layers, run.model.hidden));
  if (const std::string experts = experts_text(run); !experts.empty()) output.say(experts);
  output.say(fmt::format("grid x·y·z·data = {}: {} {}", run.parallel.grid.name(), launch.ranks,
                         launch.mpi ? "processes (MPI)" : "threads of this process"));
  output.say(fmt::format("{} steps of {} tokens from {} ({} tokens)", run.train.steps, step_tokens,
                         run.data.train, format_count(data.train_set.tokens.size())));
  if (run.comm.emulate) {
    output.say(
        fmt::format("the network is emulated ({}): times are no measurements", run.machine_file));
  }
  output.say(fmt::format("run folder {}", run.dir));
}

/// What rank 0 writes to, made in its thread: under MPI the others wait for it in the communicator,
/// where its failure reaches them.
struct RankZero {
  RankZero(const RunSpec& run, const TrainOptions& options)
      : folder(run),
        output(folder, {run.train.steps, run.train.log_interval, options.json},
               run.log.tensorboard) {}
  RunFolder folder;
  RunOutput output;
};

int train_rank(const TrainOptions& options, const Launch& launch, const RunData& data,
               const TrainerShared& shared, Communicator& world) {
  const RunSpec& run = shared.run;
  std::unique_ptr<RankZero> zero;
  if (world.rank() == 0) {
    zero = std::make_unique<RankZero>(run, options);
    announce(run, launch, data, zero->output);
  }
  RunOutput* output = zero ? &zero->output : nullptr;
  const int code = Trainer(shared, output, world).train();
  if (!output) return code;
  output->finish();
  if (run.log.report) output->say(fmt::format("report {}", write_run_report(run)));
  return code;
}

}  // namespace

int train_command(const TrainOptions& options) {
  const SteadyClock clock;
  const double started = clock.seconds();
  install_caching_allocator();
  RunSpec run = load_run(options.file, options.overrides).value();
  if (!options.run_dir.empty()) run.dir = options.run_dir;
  const Launch launch = choose_launch(run, options.ranks);
  run.parallel.ranks_on_node = ranks_on_node(run, launch);
  const CommOptions comm = comm_options(run);
  if (options.dry_run) {
    if (launch.speaks) fmt::print("{}", describe_run(run));
    return 0;
  }
  const SignalWatch signals;
  const RunData data(run);
  const TrainerShared shared{run,   data.train, data.valid.get(),   signals,
                             clock, started,    options.trace_steps};
  std::atomic<int> code{0};
  run_ranks(launch, comm, [&](Communicator& world) {
    try {
      const int mine = train_rank(options, launch, data, shared, world);
      if (world.rank() == 0 || launch.mpi) code = mine;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kCommunication) {
        write_incident(run.dir, world.rank(), incident_report(world, error));
      }
      throw;
    }
  });
  return code;
}

}  // namespace fourfold
