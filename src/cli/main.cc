#include <fmt/core.h>

#include <algorithm>

#include "base/launcher.h"
#include "cli/command.h"
#include "cli/parse.h"
#include "cli/report.h"
#include "cli/usage.h"

namespace fourfold::cli {

std::vector<Command> all_commands() {
  std::vector<Command> commands{train_command_line(), verify_command_line(),
                                generate_command_line()};
  for (auto part : {data_command_lines(), ckpt_command_lines()}) {
    commands.insert(commands.end(), part.begin(), part.end());
  }
  commands.push_back(simulate_step_command_line());
  commands.push_back(version_command_line());
  commands.push_back(docs_command_line());
  return commands;
}

namespace {

/// Every rank of a run has the same command line, so rank 0 alone speaks of it.
bool speaks() {
  const auto process = launched_process();
  return !process || process->rank == 0;
}

int run_program(int argc, const char* const* argv) {
  const auto commands = all_commands();
  Parsed parsed;
  try {
    parsed = parse(commands, argc, argv);
  } catch (const Error& error) {
    if (!speaks()) return error.exit_code();
    throw;
  }
  if (parsed.help) {
    if (!speaks()) return 0;
    fmt::print("{}", parsed.command ? help(*parsed.command) : overview(commands, parsed.group));
    return 0;
  }
  return parsed.version ? version_command_line().run() : parsed.command->run();
}

}  // namespace
}  // namespace fourfold::cli

int main(int argc, char** argv) {
  return fourfold::cli::guarded([&] { return fourfold::cli::run_program(argc, argv); });
}
