#include "spec/config_docs.h"

#include <fmt/core.h>

#include <array>

#include "base/units.h"
#include "spec/config_key.h"
#include "spec/counts.h"
#include "spec/presets.h"

namespace fourfold {
namespace {

constexpr const char* kIntroduction =
    R"(# The run file

Made from the program's own table of keys by `tools/make_docs.sh`; a test checks that it is current.

A run file is TOML, one table per part. Any value is overridden by `--set table.key=value`; the
later one wins. Whole numbers may carry a unit: `"64MiB"`, `1e9`, `"2m"` (k, m, g, t are powers of
1000; KiB, MiB, GiB, TiB powers of 1024). Relative paths are relative to the current directory. An
unknown key or an impossible value is an error (exit code 2) that names file and line.

Keys marked *later* belong to parts that are not built yet: the value shown is the only one taken.
)";

std::string cell(const ConfigKey& key) {
  std::string text(key.text.doc);
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (!key.text.choices.empty()) {
    std::string words;
    for (const std::string& word : key.text.choices) {
      words += fmt::format("{}`{}`", words.empty() ? "" : ", ", word);
    }
    add("one of " + words);
  }
  for (const std::string& word : key.text.later) add(fmt::format("`{}` *later*", word));
  if (!key.built) add("*later*");
  return text;
}

std::string type_name(const ConfigKey& key) {
  static constexpr std::array<const char*, 6> kNames{"flag",   "whole",   "number",
                                                     "string", "numbers", "strings"};
  std::string name = kNames[static_cast<std::size_t>(key.type)];
  return key.text.unit.empty() ? name : fmt::format("{}, {}", name, key.text.unit);
}

std::string default_of(const ConfigKey& key) {
  return key.text.default_text.empty() ? fmt::format("`{}`", to_toml(key.get(RunSpec{})))
                                       : std::string(key.text.default_text);
}

// "8, top 2, width 512, in every 2nd block, 1 shared".
std::string experts_cell(const MoeSpec& m) {
  if (m.experts == 0) return "";
  std::string text = fmt::format("{}, top {}, width {}", m.experts, m.top_k, m.ffn);
  if (m.every == 2) text += ", in every 2nd block";
  if (m.shared_experts > 0) text += fmt::format(", {} shared", m.shared_experts);
  return text;
}

std::string preset_table() {
  std::string text =
      "\n## Presets\n\nWhere there are experts, a token uses the active ones of the parameters.\n\n"
      "| preset | layers | hidden | heads | kv_heads | ffn | seq_len | vocab | experts | "
      "parameters | active |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const std::string& name : preset_names()) {
    const ModelSpec m = *find_preset(name);
    const ParameterCount count = count_parameters(m);
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name,
                        m.layers, m.hidden, m.heads, m.kv_heads, m.ffn, m.seq_len, m.vocab,
                        experts_cell(m.moe), format_count(count.total()),
                        m.moe.experts > 0 ? format_count(count.active()) : "");
  }
  return text;
}

}  // namespace

std::string config_docs() {
  std::string text = kIntroduction;
  std::string table;
  for (const ConfigKey& key : config_keys()) {
    if (key.table() != table) {
      table = key.table();
      text += fmt::format("\n## [{}]\n\n{}\n\n| key | type | default | meaning |\n", table,
                          table_purpose(table));
      text += "| --- | --- | --- | --- |\n";
    }
    text += fmt::format("| `{}` | {} | {} | {} |\n", key.name(), type_name(key), default_of(key),
                        cell(key));
  }
  return text + preset_table();
}

}  // namespace fourfold
