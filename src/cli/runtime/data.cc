#include <fmt/core.h>

#include <cstdio>
#include <string>

#include "base/log.h"
#include "cli/options.h"
#include "cli/report.h"
#include "data/commands.h"

// The data commands of the runtime library. Exceptions end here.

namespace fourfold::cli {
namespace {

Log console() {
  return Log([](LogLevel level, std::string_view text) {
    fmt::print(level == LogLevel::kInfo ? stdout : stderr, "{}{}\n",
               level == LogLevel::kWarning ? "warning: " : "", text);
    std::fflush(stdout);
  });
}

// PREFIX of "PREFIX.bin" and "PREFIX.idx".
std::string without_suffix(std::string path) {
  if (path.ends_with(".bin") || path.ends_with(".idx")) path.resize(path.size() - 4);
  return path;
}

}  // namespace
}  // namespace fourfold::cli

extern "C" int fourfold_data_tokenizer(const fourfold::DataTokenizerOptions* options) {
  return fourfold::cli::guarded([&] {
    fourfold::train_tokenizer(
        {.inputs = options->inputs, .output = options->output, .vocab_size = options->vocab},
        fourfold::cli::console());
    return 0;
  });
}

extern "C" int fourfold_data_prepare(const fourfold::DataPrepareOptions* options) {
  return fourfold::cli::guarded([&] {
    fourfold::prepare_data({.inputs = options->inputs,
                            .tokenizer = options->tokenizer,
                            .output = options->output,
                            .valid_fraction = options->valid_fraction},
                           fourfold::cli::console());
    return 0;
  });
}

extern "C" int fourfold_data_show(const fourfold::DataShowOptions* options) {
  return fourfold::cli::guarded([&] {
    fmt::print("{}", fourfold::show_data({.prefix = fourfold::cli::without_suffix(options->path),
                                          .tokenizer = options->tokenizer,
                                          .tokens = options->tokens}));
    return 0;
  });
}
