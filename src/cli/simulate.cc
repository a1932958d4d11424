#include <fmt/core.h>

#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "formats/chrome_trace.h"
#include "plan/event_simulator.h"
#include "plan/step_shares.h"
#include "spec/run_config.h"

namespace fourfold::cli {
namespace {

struct SimulateOptions {
  std::string file;
  std::string times;  ///< The folder of a run with timelines.
  std::vector<std::string> overrides;
  std::string trace;  ///< Where the simulated timeline goes; empty: nowhere.
  bool json = false;
};

TaskTimes measured_times(const RunSpec& run, const std::string& folder) {
  std::vector<std::vector<TimelineSpan>> ranks;
  for (int rank = 0; rank < run.parallel.grid.size(); ++rank) {
    auto spans = read_chrome_trace(trace_path(folder, rank));
    if (!spans) {
      throw Error(spans.error().kind(), spans.error().what(),
                  fmt::format("make the timelines of {} ranks with: fourfold train FILE "
                              "--run-dir {} --trace 5",
                              run.parallel.grid.size(), folder));
    }
    ranks.push_back(std::move(spans).value());
  }
  return TaskTimes::measured(ranks);
}

int simulate_step(const SimulateOptions& o) {
  auto loaded = load_run(o.file, o.overrides);
  if (!loaded) throw loaded.error();
  RunSpec run = std::move(loaded).value();
  if (const Status grid = resolve_grid(run, 0); !grid) throw grid.error();
  const TaskTimes times = measured_times(run, o.times);
  const StepProgram program = step_program(run);
  const SimulatedRun simulated = simulate(program, times);
  const StepShares shares = step_shares(simulated.spans, simulated.step);
  const double serial = serial_seconds(program, times);
  if (!o.trace.empty()) write_chrome_trace(o.trace, 0, 0, simulated.spans);
  if (o.json) {
    fmt::print(
        "{{\"seconds\":{},\"compute_seconds\":{},\"exposed_seconds\":{},"
        "\"hidden_seconds\":{},\"serial_seconds\":{}}}\n",
        shares.step, shares.compute, shares.exposed, shares.hidden, serial);
    return 0;
  }
  const auto print = [&](const char* what, double seconds) {
    fmt::print("{:<34}{:>9.4f} s{:>7.1f} %\n", what, seconds, 100 * seconds / shares.step);
  };
  print("a step", shares.step);
  print("  computation", shares.compute);
  print("  communication that it waits for", shares.exposed);
  print("communication behind computation", shares.hidden);
  print("the same, one after the other", serial);
  return 0;
}

}  // namespace

Command simulate_step_command_line() {
  auto o = std::make_shared<SimulateOptions>();
  return {
      "simulate step",
      "says how long a step takes with a run file's overlap",
      "Runs the tasks of a step on paper: what overlaps what follows from the run file, how "
      "long each task takes from the timelines of a real run of the same model, grid and "
      "micro-batch, best one without overlap. A collective that runs behind computation takes "
      "its CPU time from it. Models without experts.",
      {
          {"FILE", "", "the run file", &o->file, true},
          {"--times", "DIR", "the folder of a run that kept timelines (train --trace)", &o->times,
           true},
          {"--set", "K=V", "a value in place of the file's; may be repeated", &o->overrides},
          {"--trace-out", "FILE", "writes the simulated timeline, for chrome://tracing", &o->trace},
          {"--json", "", "print one JSON object in place of a table", &o->json},
      },
      {"fourfold simulate step configs/verify-gpt.toml --times runs/first"},
      [o] { return simulate_step(*o); }};
}

}  // namespace fourfold::cli
