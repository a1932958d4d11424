#include <memory>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/runtime_library.h"

namespace fourfold::cli {

Command train_command_line() {
  auto o = std::make_shared<TrainOptions>();
  return {
      "train",
      "trains the model of a run file",
      "Trains what the run file says and resumes by itself from the newest valid checkpoint of the "
      "run folder. Ranks are threads of this process unless it was started under mpirun or srun; "
      "then they are the processes. SIGTERM, SIGINT and SIGUSR1 finish the step, save, and end "
      "with exit code 75: run the same command again. The run folder holds config.toml, log.txt, "
      "metrics.jsonl, checkpoints/ and report.html.",
      {
          {"FILE", "", "the run file (TOML; docs/config.md lists the keys)", &o->file, true},
          {"--run-dir", "DIR", "the run folder", &o->run_dir, false, 0, 0, false,
           "run.dir of the file"},
          {"--set", "K=V", "a value in place of the file's; may be repeated, the later one wins",
           &o->overrides},
          {"--ranks", "N", "ranks as threads; where the grid is fixed, its number", &o->ranks,
           false, 0, 4096, false, "what the grid says, else the cores"},
          {"--dry-run", "", "print layout, memory and plan, and stop", &o->dry_run},
          {"--trace", "N", "steps of which a timeline is kept in traces/", &o->trace_steps, false,
           0, 1e9},
          {"--json", "", "print JSON lines in place of prose", &o->json},
      },
      {"fourfold train configs/quickstart.toml --set train.steps=20 --run-dir runs/first"},
      [o] { return call_runtime("fourfold_train", *o); }};
}

}  // namespace fourfold::cli
