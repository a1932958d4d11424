#include "cli/options.h"
#include "cli/report.h"

// What the program calls of the runtime library: one function per command. Exceptions end here.

extern "C" int fourfold_train(const fourfold::TrainOptions* options) {
  return fourfold::cli::guarded([&] { return fourfold::train_command(*options); });
}

extern "C" int fourfold_verify(const fourfold::VerifyOptions* options) {
  return fourfold::cli::guarded([&] { return fourfold::verify_command(*options); });
}

extern "C" int fourfold_generate(const fourfold::GenerateOptions* options) {
  return fourfold::cli::guarded([&] { return fourfold::generate_command(*options); });
}
