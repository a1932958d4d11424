#include <fmt/core.h>

#include "spec/config_key.h"
#include "spec/presets.h"
#include "spec/run_config.h"

namespace fourfold {
namespace {

// What the run would be had nothing but its preset or family been given.
RunSpec defaults_of(const RunSpec& run) {
  RunSpec base;
  const auto preset = find_preset(run.model.preset);
  base.model = preset ? *preset : family_defaults(run.model.family).value_or(ModelSpec{});
  base.train.seq_len = run.model.seq_len;
  if (!run.origins.contains("run.dir")) base.dir = run.dir;
  return base;
}

}  // namespace

std::string resolved_toml(const RunSpec& run) {
  const RunSpec base = defaults_of(run);
  std::string text;
  std::string table;
  for (const ConfigKey& key : config_keys()) {
    if (!key.built) continue;
    if (key.table() != table) {
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", key.table());
      table = key.table();
    }
    const ConfigValue value = key.get(run), usual = key.get(base);
    std::string line = fmt::format("{} = {}", key.name(), to_toml(value));
    if (value != usual) line += fmt::format("  # default: {}", to_toml(usual));
    text += line + "\n";
  }
  return text;
}

}  // namespace fourfold
