#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace fourfold::cli {

/// `fourfold --help`; with a group, `fourfold data --help`.
std::string overview(const std::vector<Command>& commands, const std::string& group = "");

/// `fourfold COMMAND --help`.
std::string help(const Command& command);

/// The man page, section 1, of one command.
std::string man_page(const Command& command);

/// The man page of the program.
std::string man_page(const std::vector<Command>& commands);

/// docs/cli.md.
std::string markdown(const std::vector<Command>& commands);

/// "the default is 4", or nothing for flags and options without one.
std::string default_of(const Option& option);

/// "fourfold train FILE [--run-dir DIR] ...".
std::string synopsis(const Command& command);

}  // namespace fourfold::cli
