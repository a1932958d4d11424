#include "spec/run_config.h"

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/suggest.h"
#include "spec/config_key.h"
#include "spec/presets.h"
#include "spec/raw_config.h"
#include "spec/validate.h"

namespace fourfold {
namespace {

struct Given {
  ConfigValue value;
  std::string where;
};
using GivenKeys = std::map<std::string, Given>;

std::vector<std::string> table_names() {
  std::vector<std::string> names;
  for (const ConfigKey& key : config_keys()) {
    if (names.empty() || names.back() != key.table()) names.push_back(key.table());
  }
  return names;
}

Error unknown_key(const RawEntry& entry) {
  std::vector<std::string> all, siblings;
  std::string known;
  const std::size_t dot = entry.path.rfind('.');
  const std::string table = dot == std::string::npos ? "" : entry.path.substr(0, dot);
  for (const ConfigKey& key : config_keys()) {
    all.push_back(key.path);
    if (key.name() == entry.path.substr(dot + 1)) siblings.push_back(key.path);
    if (key.table() == table) known += (known.empty() ? "" : ", ") + key.name();
  }
  std::string near = closest(entry.path, all);
  if (near.empty() && siblings.size() == 1) near = siblings[0];  // The right key, another table.
  std::string hint = near.empty() ? "" : fmt::format("did you mean {}?", near);
  if (!known.empty()) {
    hint += fmt::format("{}[{}] knows {}", hint.empty() ? "" : " ", table, known);
  }
  if (hint.empty()) hint = "docs/config.md lists the keys";
  return Error(ErrorKind::kUsage, fmt::format("{}: unknown key {}", entry.where, entry.path), hint);
}

Status check_table(const RawEntry& entry) {
  const auto names = table_names();
  for (const std::string& name : names) {
    if (name == entry.path || name.starts_with(entry.path + ".")) return Done{};
  }
  if (const ConfigKey* key = find_key(entry.path)) return convert(*key, entry).error();
  const std::string near = closest(entry.path, names);
  std::string hint = near.empty() ? "the tables are" : fmt::format("did you mean [{}]?", near);
  if (near.empty()) {
    for (const std::string& name : names) hint += fmt::format(" [{}]", name);
  }
  return Error(ErrorKind::kUsage, fmt::format("{}: unknown table [{}]", entry.where, entry.path),
               hint);
}

Status take(const RawEntry& entry, GivenKeys& given) {
  if (entry.value.kind == RawValue::Kind::kTable) return check_table(entry);
  const ConfigKey* key = find_key(entry.path);
  if (!key) return unknown_key(entry);
  auto value = convert(*key, entry);
  if (!value) return value.error();
  given[entry.path] = {std::move(value).value(), entry.where};
  return Done{};
}

// The model before its own keys: the preset, else the family.
Result<ModelSpec> base_model(const GivenKeys& given) {
  const auto text = [&](const char* key) {
    const auto at = given.find(key);
    return at == given.end() ? std::string() : std::get<std::string>(at->second.value);
  };
  const std::string preset = text("model.preset"), family = text("model.family");
  if (preset.empty()) return *family_defaults(family.empty() ? "gpt" : family);
  const auto model = find_preset(preset);
  if (!model) {
    const auto names = preset_names();
    const std::string near = closest(preset, names);
    std::string hint = near.empty() ? "presets are" : fmt::format("did you mean \"{}\"?", near);
    if (near.empty()) {
      for (const std::string& name : names) hint += " " + name;
    }
    return Error(ErrorKind::kUsage,
                 fmt::format("{}: no preset \"{}\"", given.at("model.preset").where, preset), hint);
  }
  if (!family.empty() && family != model->family) {
    return Error(ErrorKind::kUsage,
                 fmt::format("{}: preset {} is of family {}, not {}",
                             given.at("model.family").where, preset, model->family, family),
                 "leave out model.family");
  }
  return *model;
}

// Sizes of the preset that follow from others are derived anew where those others are given.
void forget_derived(ModelSpec& model, const GivenKeys& given) {
  const auto has = [&](const char* key) { return given.contains(key); };
  if (has("model.heads")) model.kv_heads = 0;
  if (has("model.heads") || has("model.hidden")) model.head_dim = 0;
  const bool wide = has("model.hidden") || has("model.activation");
  if (wide || (has("model.ffn") && model.moe.ffn == model.ffn)) model.moe.ffn = 0;
  if (wide) model.ffn = 0;
  // A preset's experts are all that its other keys of [model.moe] are about.
  const auto experts = given.find("model.moe.experts");
  if (experts != given.end() && std::get<std::int64_t>(experts->second.value) == 0) {
    model.moe = MoeSpec{};
  }
}

void complete_train(TrainSpec& train, const ModelSpec& model) {
  if (train.seq_len == 0) train.seq_len = model.seq_len;
  const std::int64_t wanted = train.global_batch * train.seq_len;
  if (train.steps == 0 && wanted > 0) {
    train.steps = train.tokens / wanted + (train.tokens % wanted != 0);
  }
}

Result<RunSpec> build(const GivenKeys& given, const std::string& source) {
  auto model = base_model(given);
  if (!model) return model.error();
  RunSpec run;
  run.model = model.value();
  run.dir = "runs/" + std::filesystem::path(source).stem().string();
  forget_derived(run.model, given);
  for (const auto& [path, value] : given) {
    find_key(path)->set(run, value.value);
    run.origins[path] = value.where;
  }
  complete_model(run.model);
  complete_train(run.train, run.model);
  if (const auto problem = check_run(run)) return to_error(run, *problem);
  if (grid_is_open(run.parallel.grid)) return run;
  if (const auto problem = check_grid(run)) return to_error(run, *problem);
  return run;
}

}  // namespace

Result<RunSpec> load_run(const std::string& path, std::span<const std::string> overrides) {
  const Error unreadable(ErrorKind::kUsage, fmt::format("run file {} cannot be read", path),
                         "give the path of a TOML file; configs/ holds examples");
  constexpr std::uintmax_t kMaxBytes = 16 << 20;
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed)) return unreadable;
  if (std::filesystem::file_size(path, failed) > kMaxBytes || failed) return unreadable;
  std::ifstream file(path, std::ios::binary);
  if (!file) return unreadable;
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return parse_run(text, path, overrides);
}

Result<RunSpec> parse_run(std::string_view text, const std::string& source,
                          std::span<const std::string> overrides) {
  auto entries = read_toml(text, source);
  if (!entries) return entries.error();
  GivenKeys given;
  for (const RawEntry& entry : entries.value()) {
    if (const Status taken = take(entry, given); !taken) return taken.error();
  }
  for (const std::string& text_of_one : overrides) {
    auto entry = read_override(text_of_one);
    if (!entry) return entry.error();
    if (const Status taken = take(entry.value(), given); !taken) return taken.error();
    // An override of one of the two ways to say how long takes the place of the other.
    if (entry.value().path == "train.steps") given.erase("train.tokens");
    if (entry.value().path == "train.tokens") given.erase("train.steps");
  }
  return build(given, source);
}

bool grid_is_open(const GridShape& grid) {
  return grid.x == -1 || grid.y == -1 || grid.z == -1 || grid.data == -1;
}

Status resolve_grid(RunSpec& run, int ranks) {
  if (const auto problem = check_run(run)) return to_error(run, *problem);
  GridShape& grid = run.parallel.grid;
  int known = 1;
  Axis open = Axis::kX;
  for (Axis axis : kAllAxes) {
    if (grid[axis] == -1) {
      open = axis;
    } else {
      known *= grid[axis];
    }
  }
  const bool is_open = grid_is_open(grid);
  const std::string shown =
      fmt::format("x·y·z·data = {}·{}·{}·{}", grid.x, grid.y, grid.z, grid.data);
  if (is_open && (ranks <= 0 || ranks % known != 0)) {
    return Error(ErrorKind::kUsage, fmt::format("{} does not fit {} ranks", shown, ranks),
                 fmt::format("the number of ranks must be a multiple of {}", known));
  }
  if (!is_open && ranks != 0 && ranks != known) {
    return Error(ErrorKind::kUsage,
                 fmt::format("{} is {} ranks, but {} were started", shown, known, ranks),
                 "change the grid ([parallel]) or the number of ranks; -1 for one axis fits it");
  }
  if (is_open) grid[open] = ranks / known;
  if (const auto problem = check_grid(run)) return to_error(run, *problem);
  return Done{};
}

}  // namespace fourfold
