#include <fmt/core.h>

#include <cstdio>
#include <string_view>

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

}  // namespace
}  // namespace fourfold::cli

extern "C" int fourfold_data_tokenizer(const fourfold::TrainTokenizerOptions* options) {
  return fourfold::cli::guarded([&] {
    fourfold::train_tokenizer(*options, fourfold::cli::console());
    return 0;
  });
}

extern "C" int fourfold_data_prepare(const fourfold::PrepareDataOptions* options) {
  return fourfold::cli::guarded([&] {
    fourfold::prepare_data(*options, fourfold::cli::console());
    return 0;
  });
}

extern "C" int fourfold_data_show(const fourfold::ShowDataOptions* options) {
  return fourfold::cli::guarded([&] {
    fmt::print("{}", fourfold::show_data(*options));
    return 0;
  });
}
