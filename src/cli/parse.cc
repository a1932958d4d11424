#include "cli/parse.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>

#include "base/error.h"
#include "base/suggest.h"

namespace fourfold::cli {
namespace {

template <class Number>
void store_number(const Option& option, const std::string& text, Number* target) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data(), end, value);
  const auto real = static_cast<double>(value);
  const bool fits = failed == std::errc() && stop == end && real >= option.min &&
                    real <= option.max;  // Also false for NaN.
  if (!fits) {
    const char* kind = std::is_integral_v<Number> ? "a whole number" : "a number";
    std::string range = fmt::format(" of at least {}", option.min);
    if (option.max < 1e9) range = fmt::format(" from {} to {}", option.min, option.max);
    throw Error(ErrorKind::kUsage,
                fmt::format("{} must be {}{}, not \"{}\"", option.name, kind, range, text),
                fmt::format("{} {}: {}", option.name, option.value, option.doc));
  }
  *target = value;
}

struct Store {
  const Option& option;
  const std::string& text;
  void operator()(bool*) const {}
  void operator()(std::string* target) const { *target = text; }
  void operator()(std::vector<std::string>* target) const { target->push_back(text); }
  template <class Number>
  void operator()(Number* target) const {
    store_number(option, text, target);
  }
};

void add_option(CLI::App& app, const Option& option) {
  if (auto* const* flag = std::get_if<bool*>(&option.target)) {
    app.add_flag(option.name, **flag);
    return;
  }
  const auto store = [&option](const std::vector<std::string>& values) {
    for (const std::string& text : values) std::visit(Store{option, text}, option.target);
    return true;
  };
  auto* added = app.add_option(option.name, store);
  added->required(option.required)->expected(1);
  if (std::holds_alternative<std::vector<std::string>*>(option.target)) {
    added->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(option.many);
    added->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  } else {
    added->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
}

std::string full_name(const Command* command, const CLI::App& app) {
  if (command) return "fourfold " + command->name;
  return app.get_parent() ? "fourfold " + app.get_name() : "fourfold";
}

Error unknown_word(const std::string& word, const Command* command, const CLI::App& app) {
  const std::string name = full_name(command, app);
  std::vector<std::string> known{"--help"};
  if (word[0] == '-' && command) {
    for (const Option& option : command->options) known.push_back(option.name);
  } else if (!command) {
    for (const CLI::App* sub : app.get_subcommands({})) known.push_back(sub->get_name());
    known.emplace_back("--version");
  }
  const std::string plain = word.substr(0, word.find('='));
  const std::string near = closest(plain, known);
  const char* kind = word[0] == '-' ? "option" : command ? "argument" : "command";
  return Error(ErrorKind::kUsage, fmt::format("unknown {} {} of {}", kind, plain, name),
               near.empty() ? fmt::format("{} --help says what there is", name)
                            : fmt::format("did you mean {}?", near));
}

// The commands as CLI11 knows them: "data prepare" is a sub-command of a sub-command.
class Parser {
 public:
  explicit Parser(const std::vector<Command>& commands) : root_("", "fourfold") {
    prepare(root_);
    root_.add_flag("--version", version_);
    for (const Command& command : commands) {
      CLI::App* app = &root_;
      const std::size_t blank = command.name.find(' ');
      if (blank != std::string::npos) app = group(command.name.substr(0, blank));
      const std::string leaf =
          blank == std::string::npos ? command.name : command.name.substr(blank + 1);
      CLI::App* added = app->add_subcommand(leaf, command.purpose);
      prepare(*added);
      for (const Option& option : command.options) add_option(*added, option);
      commands_[added] = &command;
    }
  }

  Parsed parse(int argc, const char* const* argv) {
    Parsed parsed;
    try {
      root_.parse(argc, argv);
    } catch (const CLI::ParseError& problem) {
      parsed = chosen_parts();
      if (parsed.help) return parsed;
      refuse_unknown();
      throw usage_error(problem, parsed.command);
    }
    parsed = chosen_parts();
    if (!parsed.help) refuse_unknown();
    if (!parsed.command && !parsed.help && !version_) throw no_command();
    return parsed;
  }

 private:
  // --help is an option like others, so that it wins over what is missing; and what is left over
  // is judged here, not by CLI11.
  void prepare(CLI::App& app) {
    app.set_help_flag();
    app.allow_extras();
    app.add_flag("--help,-h", help_);
  }

  CLI::App* group(const std::string& name) {
    CLI::App*& found = groups_[name];
    if (!found) {
      found = root_.add_subcommand(name);
      prepare(*found);
    }
    return found;
  }

  const CLI::App* innermost() const {
    const CLI::App* app = &root_;
    while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
    return app;
  }

  const Command* chosen() const {
    const auto found = commands_.find(innermost());
    return found == commands_.end() ? nullptr : found->second;
  }

  Parsed chosen_parts() const {
    const CLI::App* app = innermost();
    const Command* command = chosen();
    return {command, command || app == &root_ ? "" : app->get_name(), asks_help(), version_};
  }

  bool asks_help() const { return innermost()->count("--help") > 0 || root_.count("--help") > 0; }

  void refuse_unknown() const {
    const std::vector<std::string> left = root_.remaining(true);
    if (left.empty()) return;
    const auto dashed = std::find_if(left.begin(), left.end(), [](const std::string& word) {
      return word.size() > 1 && word[0] == '-';
    });
    throw unknown_word(dashed == left.end() ? left.front() : *dashed, chosen(), *innermost());
  }

  Error no_command() const {
    std::string known;
    const CLI::App* app = innermost();
    for (const CLI::App* sub : app->get_subcommands({})) {
      const auto found = commands_.find(sub);
      const bool hidden = found != commands_.end() && found->second->hidden;
      if (!hidden) known += " " + sub->get_name();
    }
    const std::string name = full_name(nullptr, *app);
    return Error(ErrorKind::kUsage, fmt::format("{}: no command", name),
                 fmt::format("one of{}; {} --help says more", known, name));
  }

  Error usage_error(const CLI::ParseError& problem, const Command* command) const {
    const std::string name = full_name(command, *innermost());
    return Error(ErrorKind::kUsage, fmt::format("{}: {}", name, problem.what()),
                 fmt::format("{} --help says what it takes", name));
  }

  CLI::App root_;
  std::map<const CLI::App*, const Command*> commands_;
  std::map<std::string, CLI::App*> groups_;
  bool help_ = false;
  bool version_ = false;
};

}  // namespace

Parsed parse(const std::vector<Command>& commands, int argc, const char* const* argv) {
  return Parser(commands).parse(argc, argv);
}

}  // namespace fourfold::cli
