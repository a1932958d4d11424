#include <memory>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/runtime_library.h"

namespace fourfold::cli {

Command verify_command_line() {
  auto o = std::make_shared<VerifyOptions>();
  return {"verify",
          "compares losses and gradients of many grids with those of one rank",
          "Trains the same few steps of the run file's model on several grids and prints the "
          "largest difference of losses, gradients and initial weights against one rank. Exit code "
          "0 where all are within the tolerances, 1 where one is not.",
          {
              {"FILE", "", "the run file; its own grid is one of those compared", &o->file, true},
              {"--set", "K=V", "a value in place of the file's; may be repeated", &o->overrides},
              {"--json", "", "print one JSON object per grid", &o->json},
          },
          {"fourfold verify configs/verify-gpt.toml"},
          [o] { return call_runtime("fourfold_verify", *o); }};
}

}  // namespace fourfold::cli
