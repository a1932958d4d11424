#include "cli/usage.h"

#include <fmt/core.h>

#include <sstream>

namespace fourfold::cli {
namespace {

constexpr std::size_t kWidth = 88;

// Fills lines with the words of the text; lines after the first start with `indent` blanks.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t column) {
  std::istringstream words(text);
  std::string out, word;
  for (bool first = true; words >> word; first = false) {
    if (!first && column + 1 + word.size() > kWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (!first) {
      out += " ";
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

bool positional(const Option& option) { return option.name[0] != '-'; }

std::string head_of(const Option& option) {
  return option.value.empty() ? option.name : option.name + " " + option.value;
}

std::string described(const Option& option) {
  std::string text = option.doc;
  if (option.required && !positional(option)) text += " (required)";
  const std::string usual = default_of(option);
  return usual.empty() ? text : fmt::format("{} (default: {})", text, usual);
}

std::string row(const std::string& head, const std::string& text) {
  constexpr std::size_t kColumn = 26;
  std::string line = "  " + head;
  if (line.size() + 2 > kColumn) {
    line += "\n" + std::string(kColumn, ' ');
  } else {
    line.resize(kColumn, ' ');
  }
  return line + wrapped(text, kColumn, kColumn) + "\n";
}

std::string options_text(const Command& command, bool arguments) {
  std::string text;
  for (const Option& option : command.options) {
    if (positional(option) == arguments) text += row(head_of(option), described(option));
  }
  if (!arguments) text += row("--help", "print this and stop");
  return text;
}

struct DefaultText {
  std::string operator()(const bool*) const { return ""; }
  std::string operator()(const std::string* v) const { return *v; }
  std::string operator()(const std::vector<std::string>*) const { return ""; }
  template <class Number>
  std::string operator()(const Number* v) const {
    return fmt::format("{}", *v);
  }
};

// Text as troff shows it unchanged.
std::string troff(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) {
      out += std::string("\\&") + c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string dashed(std::string name) {
  for (char& c : name) {
    if (c == ' ') c = '-';
  }
  return name;
}

std::string man_head(const std::string& page, const std::string& purpose) {
  std::string upper = page;
  for (char& c : upper) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return fmt::format(".TH {} 1 \"\" \"fourfold {}\" \"User Commands\"\n.SH NAME\n{} \\- {}\n",
                     troff(upper), FOURFOLD_VERSION, troff(page), troff(purpose));
}

constexpr const char* kPurpose =
    "trains large transformers in parallel over a grid of x·y·z·data ranks";

constexpr const char* kExitCodes[][2] = {
    {"0", "done"},
    {"1", "internal error"},
    {"2", "usage or configuration, also a missing or unreadable run file"},
    {"3", "data, or files that it names"},
    {"4", "communication, or a lost peer"},
    {"5", "no usable checkpoint"},
    {"6", "numerics: NaN by policy"},
    {"75", "saved after a signal or a time budget; run again"},
    {"128+n", "ended by signal n"},
};

}  // namespace

std::string default_of(const Option& option) {
  if (option.required) return "";
  if (!option.default_text.empty()) return option.default_text;
  return std::visit(DefaultText{}, option.target);
}

std::string synopsis(const Command& command) {
  std::string text = "fourfold " + command.name;
  for (const Option& option : command.options) {
    std::string part = head_of(option);
    if (option.many) part += "...";
    text += option.required ? " " + part : fmt::format(" [{}]", part);
    if (std::holds_alternative<std::vector<std::string>*>(option.target) && !option.many) {
      text += "...";
    }
  }
  return text;
}

std::string overview(const std::vector<Command>& commands, const std::string& group) {
  std::string text = fmt::format("fourfold {}: {}\n\nUsage: fourfold COMMAND [options]\n\n",
                                 FOURFOLD_VERSION, kPurpose);
  text += "Commands:\n";
  for (const Command& command : commands) {
    const bool listed = group.empty() || command.name.starts_with(group + " ");
    if (listed && !command.hidden) text += row(command.name, command.purpose);
  }
  text += "\nfourfold COMMAND --help says more of each.\n\nExit codes:\n";
  for (const auto& [code, meaning] : kExitCodes) text += row(code, meaning);
  text += "\nExample:\n  fourfold train configs/quickstart.toml\n";
  return text;
}

std::string help(const Command& command) {
  std::string text = fmt::format("fourfold {}: {}\n\n", command.name, command.purpose);
  constexpr std::size_t kUsage = 7;  // "Usage: "
  text += "Usage: " + wrapped(synopsis(command), kUsage, kUsage) + "\n\n";
  text += wrapped(command.text, 0, 0) + "\n";
  const std::string arguments = options_text(command, true);
  if (!arguments.empty()) text += "\nArguments:\n" + arguments;
  text += "\nOptions:\n" + options_text(command, false);
  text += "\nExample:\n";
  for (const std::string& example : command.examples) text += "  " + example + "\n";
  return text;
}

std::string man_page(const Command& command) {
  std::string text = man_head("fourfold-" + dashed(command.name), command.purpose);
  text += fmt::format(".SH SYNOPSIS\n{}\n.SH DESCRIPTION\n{}\n.SH OPTIONS\n",
                      troff(synopsis(command)), troff(command.text));
  for (const Option& option : command.options) {
    text += fmt::format(".TP\n.B {}\n{}\n", troff(head_of(option)), troff(described(option)));
  }
  text += ".TP\n.B \\-\\-help\nprint a summary and stop\n.SH EXAMPLE\n";
  for (const std::string& example : command.examples) {
    text += fmt::format(".nf\n{}\n.fi\n", troff(example));
  }
  return text + ".SH SEE ALSO\nfourfold(1)\n";
}

std::string man_page(const std::vector<Command>& commands) {
  std::string text = man_head("fourfold", kPurpose);
  text += ".SH SYNOPSIS\nfourfold COMMAND [options]\n.SH COMMANDS\n";
  for (const Command& command : commands) {
    if (command.hidden) continue;
    text += fmt::format(".TP\n.B {}\n{}; see fourfold\\-{}(1)\n", troff(command.name),
                        troff(command.purpose), troff(dashed(command.name)));
  }
  text += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kExitCodes) {
    text += fmt::format(".TP\n.B {}\n{}\n", code, troff(meaning));
  }
  return text + ".SH EXAMPLE\n.nf\nfourfold train configs/quickstart.toml\n.fi\n";
}

std::string markdown(const std::vector<Command>& commands) {
  std::string text =
      "# Commands\n\nMade from the program's own help by `tools/make_docs.sh`; a test checks that "
      "it is current.\n\n```\n" +
      overview(commands) + "```\n";
  for (const Command& command : commands) {
    if (command.hidden) continue;
    text += fmt::format("\n## fourfold {}\n\n```\n{}```\n", command.name, help(command));
  }
  return text;
}

}  // namespace fourfold::cli
