#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fourfold {

/// `fourfold train FILE`. Ranks are threads of this process unless it was started under mpirun or
/// srun.
struct TrainOptions {
  std::string file;                    ///< The run file.
  std::string run_dir;                 ///< In place of run.dir; empty: the file's.
  std::vector<std::string> overrides;  ///< "a.b=c", later wins.
  int ranks = 0;                       ///< Thread ranks; 0: what the grid says, else the cores.
  bool dry_run = false;                ///< Print layout, memory and plan, and stop.
  int trace_steps = 0;                 ///< Steps of which a timeline is kept; 0: none.
  bool json = false;                   ///< Print one JSON object per line in place of prose.
};

/// `fourfold verify FILE`: the same steps on several grids against one rank.
struct VerifyOptions {
  std::string file;
  std::vector<std::string> overrides;
  bool json = false;
};

/// `fourfold generate`: exactly one of run_dir and checkpoint is given.
struct GenerateOptions {
  std::string run_dir;
  std::string checkpoint;     ///< A folder of checkpoints, or one step of it.
  std::string prompt;         ///< Empty: from the begin-of-text token alone.
  int max_tokens = 100;       ///< Tokens to sample after the prompt.
  double temperature = 1.0;   ///< 0: greedy.
  int top_k = 0;              ///< 0: all tokens.
  double top_p = 1.0;         ///< 1: all tokens.
  std::uint64_t seed = 1234;  ///< Of the samples.
};

/// Each runs its command to the end and returns 0, or throws an Error, whose kind is the exit code
/// of the process. `train_command` returns 75 where it saved after a signal or a time budget.
int train_command(const TrainOptions& options);
int verify_command(const VerifyOptions& options);
int generate_command(const GenerateOptions& options);

}  // namespace fourfold
