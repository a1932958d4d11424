#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace fourfold::cli {

/// Where the value of an option goes. What stands there before parsing is the default. The
/// command's `run` owns it.
using Target =
    std::variant<bool*, int*, std::uint64_t*, double*, std::string*, std::vector<std::string>*>;

/// An option or, where the name has no dashes, an argument by position.
struct Option {
  std::string name;   ///< "--ranks", or "FILE".
  std::string value;  ///< "N"; empty for flags and arguments.
  std::string doc;
  Target target;
  bool required = false;
  double min = 0, max = 1e18;     ///< Of numbers, inclusive.
  bool many = false;              ///< Takes all values up to the next option.
  std::string default_text = {};  ///< Where the value in place does not say it.
};

/// A sub-command. Help, man page and docs/cli.md are made from this alone.
struct Command {
  std::string name;     ///< "train", or "data prepare".
  std::string purpose;  ///< One line, small letter first, no full stop.
  std::string text;     ///< More, in whole sentences.
  std::vector<Option> options;
  std::vector<std::string> examples;  ///< Lines of shell.
  std::function<int()> run;           ///< Gives the exit code.
  bool hidden = false;
};

/// All commands, in the order in which help lists them.
std::vector<Command> all_commands();

Command train_command_line();
Command verify_command_line();
Command generate_command_line();
std::vector<Command> data_command_lines();
std::vector<Command> ckpt_command_lines();
Command simulate_step_command_line();
Command version_command_line();
Command docs_command_line();

}  // namespace fourfold::cli
