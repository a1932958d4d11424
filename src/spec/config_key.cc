#include "spec/config_key.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/suggest.h"
#include "base/units.h"
#include "spec/config_builder.h"

namespace fourfold {
namespace {

std::vector<ConfigKey> all_keys() {
  std::vector<ConfigKey> keys{
      key("run.dir", FF_FIELD(dir),
          {.doc = "the run folder: log, metrics, checkpoints, report; also --run-dir",
           .default_text = "runs/NAME of NAME.toml"}),
      key("run.seed", FF_FIELD(seed), {.doc = "of weights, dropout and the order of the data"}),
  };
  keys[1].text.min = 0;
  for (auto part : {model_keys(), parallel_keys(), training_keys(), keeping_keys()}) {
    keys.insert(keys.end(), part.begin(), part.end());
  }
  return keys;
}

std::string quoted(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", word);
  }
  return text;
}

std::string number(double value) {
  return std::abs(value) < 1e15 && value == std::floor(value)
             ? fmt::format("{}", static_cast<std::int64_t>(value))
             : fmt::format("{}", value);
}

// A bound that follows from the type of the field is not worth telling.
bool told(double bound) { return std::isfinite(bound) && std::abs(bound) < 2e9; }

std::string bounds(const KeyText& text) {
  if (told(text.min) && told(text.max)) {
    return fmt::format(" from {} to {}", number(text.min), number(text.max));
  }
  if (told(text.min)) return fmt::format(" of at least {}", number(text.min));
  return told(text.max) ? fmt::format(" of at most {}", number(text.max)) : "";
}

std::optional<double> as_number(const RawScalar& scalar) {
  if (const auto* i = std::get_if<std::int64_t>(&scalar)) return static_cast<double>(*i);
  if (const auto* d = std::get_if<double>(&scalar)) return *d;
  return std::nullopt;
}

// Whole numbers may be written 300, 3e2 or "2m".
std::optional<std::int64_t> as_whole(const RawScalar& scalar) {
  if (const auto* i = std::get_if<std::int64_t>(&scalar)) return *i;
  if (const auto* text = std::get_if<std::string>(&scalar)) return parse_size(*text);
  const auto* d = std::get_if<double>(&scalar);
  if (!d || *d != std::floor(*d) || std::abs(*d) > 0x1p62) return std::nullopt;
  return static_cast<std::int64_t>(*d);
}

template <class T, class Read>
std::optional<std::vector<T>> as_list(const RawValue& value, Read read) {
  if (value.kind != RawValue::Kind::kList) return std::nullopt;
  std::vector<T> items;
  for (const RawScalar& scalar : value.list) {
    const std::optional<T> item = read(scalar);
    if (!item) return std::nullopt;
    items.push_back(*item);
  }
  return items;
}

std::optional<std::string> as_string(const RawScalar& scalar) {
  const auto* text = std::get_if<std::string>(&scalar);
  return text ? std::optional<std::string>(*text) : std::nullopt;
}

std::optional<ConfigValue> typed(KeyType type, const RawValue& value) {
  if (type == KeyType::kRealList) return as_list<double>(value, as_number);
  if (type == KeyType::kStringList) return as_list<std::string>(value, as_string);
  if (value.kind != RawValue::Kind::kScalar) return std::nullopt;
  if (type == KeyType::kWhole) return as_whole(value.scalar);
  if (type == KeyType::kReal) return as_number(value.scalar);
  if (type == KeyType::kString) return as_string(value.scalar);
  const auto* flag = std::get_if<bool>(&value.scalar);
  return flag ? std::optional<ConfigValue>(*flag) : std::nullopt;
}

bool within(const ConfigKey& key, double value) {
  return std::isfinite(value) && value >= key.text.min && value <= key.text.max;
}

bool in_bounds(const ConfigKey& key, const ConfigValue& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    return within(key, static_cast<double>(*whole));
  }
  if (const auto* real = std::get_if<double>(&value)) return within(key, *real);
  const auto* list = std::get_if<std::vector<double>>(&value);
  if (!list || !key.built) return true;
  const auto wanted = std::get<std::vector<double>>(key.get(RunSpec{})).size();
  return list->size() == wanted &&
         std::all_of(list->begin(), list->end(), [&](double v) { return within(key, v); });
}

Error not_built(const ConfigKey& key, const std::string& where, const ConfigValue& value) {
  return Error(
      ErrorKind::kUsage,
      fmt::format("{}: {} = {} is not built yet", where, key.path, to_toml(value)),
      fmt::format("leave the key out, or write {}{}", to_toml(key.get(RunSpec{})),
                  key.text.choices.empty() ? "" : " or another of " + quoted(key.text.choices)));
}

}  // namespace

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = all_keys();
  return keys;
}

std::string_view table_purpose(std::string_view table) {
  using Row = std::pair<std::string_view, std::string_view>;
  static constexpr std::array<Row, 16> kPurposes{{
      {"run", "Where a run lives and what its random numbers start from."},
      {"model", "The transformer: a preset, a family with sizes, or a preset with changes."},
      {"model.moe",
       "Mixture of experts: experts in place of the blocks' MLPs, and a router that chooses among "
       "them."},
      {"parallel", "The grid: x·y·z·data is the number of ranks."},
      {"comm", "How ranks talk."},
      {"overlap", "Communication behind computation."},
      {"memory", "What is stored, and where."},
      {"train", "How long, on how much at a time, in which type."},
      {"optimizer", "AdamW with fp32 masters."},
      {"schedule", "The learning rate over the steps."},
      {"data", "Token files. Prefixes and paths are relative to the current directory."},
      {"checkpoint", "What is saved, and when."},
      {"checkpoint.pec", "Partial experts checkpoint."},
      {"fault", "Supervision by `launch`."},
      {"log", "What a run leaves to look at."},
      {"machine", "The machine it runs on."},
  }};
  const auto* row = std::find_if(kPurposes.begin(), kPurposes.end(),
                                 [&](const Row& r) { return r.first == table; });
  return row == kPurposes.end() ? "" : row->second;
}

const ConfigKey* find_key(std::string_view path) {
  for (const ConfigKey& key : config_keys()) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

std::string expected(const ConfigKey& key) {
  static constexpr std::array<const char*, 6> kNames{"true or false",     "a whole number",
                                                     "a number",          "a string",
                                                     "a list of numbers", "a list of strings"};
  if (!key.text.choices.empty()) return "one of " + quoted(key.text.choices);
  const std::string unit = key.text.unit.empty() ? "" : fmt::format(" ({})", key.text.unit);
  std::string name = kNames[static_cast<std::size_t>(key.type)];
  if (key.type == KeyType::kRealList) {
    const auto length = std::get<std::vector<double>>(key.get(RunSpec{})).size();
    name = fmt::format("a list of {} numbers", length);
  }
  return name + bounds(key.text) + unit;
}

Result<ConfigValue> convert(const ConfigKey& key, const RawEntry& entry) {
  const auto value = typed(key.type, entry.value);
  if (!value || !in_bounds(key, *value)) {
    return Error(ErrorKind::kUsage,
                 fmt::format("{}: {} must be {}, not {}", entry.where, key.path, expected(key),
                             entry.value.describe()),
                 fmt::format("docs/config.md describes {}", key.path));
  }
  if (!key.built && *value != key.get(RunSpec{})) return not_built(key, entry.where, *value);
  if (key.text.choices.empty()) return *value;
  const std::string& word = std::get<std::string>(*value);
  const auto has = [&](const std::vector<std::string>& words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (has(key.text.later)) return not_built(key, entry.where, *value);
  if (has(key.text.choices)) return *value;
  const std::string near = closest(word, key.text.choices);
  return Error(
      ErrorKind::kUsage,
      fmt::format("{}: {} must be {}, not \"{}\"", entry.where, key.path, expected(key), word),
      near.empty() ? fmt::format("docs/config.md describes {}", key.path)
                   : fmt::format("did you mean \"{}\"?", near));
}

}  // namespace fourfold
