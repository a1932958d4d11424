#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/runtime_library.h"

namespace fourfold::cli {
namespace {

int generate(const GenerateOptions& options) {
  if (options.run_dir.empty() == options.checkpoint.empty()) {
    throw Error(ErrorKind::kUsage, "generate takes one of --run-dir and --checkpoint",
                "fourfold generate --run-dir runs/first --prompt \"In the beginning\"");
  }
  return call_runtime("fourfold_generate", options);
}

}  // namespace

Command generate_command_line() {
  auto o = std::make_shared<GenerateOptions>();
  return {
      "generate",
      "samples text from a trained model",
      "Loads the newest valid checkpoint of a run and continues the prompt. The same seed gives "
      "the same text; temperature 0 takes the likeliest token.",
      {
          {"--run-dir", "DIR", "the run whose newest checkpoint is taken", &o->run_dir, false, 0, 0,
           false, "none"},
          {"--checkpoint", "DIR", "in place of --run-dir: checkpoints/, or one step of it",
           &o->checkpoint, false, 0, 0, false, "none"},
          {"--prompt", "TEXT", "the text to continue", &o->prompt},
          {"--max-tokens", "N", "tokens to sample", &o->max_tokens, false, 0, 1e9},
          {"--temperature", "T", "divides the logits; 0: the likeliest token always",
           &o->temperature, false, 0, 1e6},
          {"--top-k", "K", "only the K likeliest tokens; 0: all", &o->top_k, false, 0, 1e9},
          {"--top-p", "P", "only the likeliest tokens that make up this probability; 1: all",
           &o->top_p, false, 0, 1},
          {"--seed", "S", "of the samples", &o->seed},
      },
      {"fourfold generate --run-dir runs/first --prompt \"In the beginning\" --max-tokens 50"},
      [o] { return generate(*o); }};
}

}  // namespace fourfold::cli
