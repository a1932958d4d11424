#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace fourfold::cli {

/// What a command line asks for.
struct Parsed {
  const Command* command = nullptr;  ///< Null: the program itself, or a group.
  std::string group;                 ///< "data" or "ckpt" where that is all that was named.
  bool help = false;
  bool version = false;
};

/// Reads the command line into the targets of the command it names. Throws an Error (kUsage), with
/// "did you mean" for options and commands that do not exist.
Parsed parse(const std::vector<Command>& commands, int argc, const char* const* argv);

}  // namespace fourfold::cli
