#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "cli/usage.h"
#include "spec/config_docs.h"

namespace fourfold::cli {
namespace {

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) {
    throw Error(ErrorKind::kData, fmt::format("{} cannot be written", path.string()),
                "give a folder that exists");
  }
}

void write_man_pages(const std::filesystem::path& folder) {
  const auto commands = all_commands();
  write(folder / "fourfold.1", man_page(commands));
  for (const Command& command : commands) {
    std::string name = command.name;
    if (command.hidden) continue;
    for (char& c : name) {
      if (c == ' ') c = '-';
    }
    write(folder / fmt::format("fourfold-{}.1", name), man_page(command));
  }
}

int docs(const std::string& what, const std::string& folder) {
  if (what == "man") {
    write_man_pages(folder);
  } else if (what == "config") {
    write(std::filesystem::path(folder) / "config.md", config_docs());
  } else if (what == "cli") {
    write(std::filesystem::path(folder) / "cli.md", markdown(all_commands()));
  } else {
    throw Error(ErrorKind::kUsage, fmt::format("docs knows no \"{}\"", what), "config, cli or man");
  }
  return 0;
}

}  // namespace

Command docs_command_line() {
  struct Options {
    std::string what, folder;
  };
  auto o = std::make_shared<Options>();
  return {"docs",
          "writes the documentation that is made from the program",
          "For the build and for tools/make_docs.sh.",
          {{"WHAT", "", "config, cli or man", &o->what, true},
           {"FOLDER", "", "where to write", &o->folder, true}},
          {"fourfold docs config docs"},
          [o] { return docs(o->what, o->folder); },
          true};
}

}  // namespace fourfold::cli
