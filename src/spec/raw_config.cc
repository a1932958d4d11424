#include "spec/raw_config.h"

#include <fmt/core.h>

#include <toml++/toml.h>
#include <algorithm>

namespace fourfold {
namespace {

RawScalar to_scalar(const toml::node& node) {
  if (const auto* b = node.as_boolean()) return b->get();
  if (const auto* i = node.as_integer()) return i->get();
  if (const auto* d = node.as_floating_point()) return d->get();
  return node.as_string()->get();
}

bool is_scalar(const toml::node& node) {
  return node.is_boolean() || node.is_number() || node.is_string();
}

RawValue to_value(const toml::node& node) {
  RawValue value;
  if (node.is_table()) {
    value.kind = RawValue::Kind::kTable;
  } else if (is_scalar(node)) {
    value.kind = RawValue::Kind::kScalar;
    value.scalar = to_scalar(node);
  } else if (const auto* array = node.as_array()) {
    value.kind = RawValue::Kind::kList;
    for (const toml::node& item : *array) {
      if (!is_scalar(item)) return RawValue{};
      value.list.push_back(to_scalar(item));
    }
  }
  return value;
}

struct Located {
  toml::source_index line;
  RawEntry entry;
};

void collect(const toml::table& table, const std::string& prefix, const std::string& source,
             std::vector<Located>& out) {
  for (const auto& [key, node] : table) {
    const std::string path = prefix + std::string(key.str());
    const auto line = key.source().begin.line;
    out.push_back({line, {path, fmt::format("{}:{}", source, line), to_value(node)}});
    if (const auto* inner = node.as_table()) collect(*inner, path + ".", source, out);
  }
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

std::string RawValue::describe() const {
  if (kind == Kind::kTable) return "a table";
  if (kind == Kind::kList) return "a list";
  if (kind == Kind::kOther) return "a date or a nested list";
  if (const auto* b = std::get_if<bool>(&scalar)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<std::int64_t>(&scalar)) return fmt::format("the number {}", *i);
  if (const auto* d = std::get_if<double>(&scalar)) return fmt::format("the number {}", *d);
  return fmt::format("the string \"{}\"", std::get<std::string>(scalar));
}

Result<std::vector<RawEntry>> read_toml(std::string_view text, const std::string& source) {
  std::vector<Located> found;
  try {
    collect(toml::parse(text, source), "", source, found);
  } catch (const toml::parse_error& e) {
    const auto at = e.source().begin;
    return Error(ErrorKind::kUsage,
                 fmt::format("{}:{}: not TOML: {} (column {})", source, at.line,
                             one_line(std::string(e.description())), at.column),
                 "one 'key = value' a line; strings stand in double quotes");
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Located& a, const Located& b) { return a.line < b.line; });
  std::vector<RawEntry> entries;
  for (Located& located : found) entries.push_back(std::move(located.entry));
  return entries;
}

Result<RawEntry> read_override(const std::string& text) {
  const std::size_t sign = text.find('=');
  if (sign == std::string::npos || sign == 0) {
    return Error(ErrorKind::kUsage, fmt::format("--set {}: no 'key=value'", text),
                 "write --set train.steps=100");
  }
  const auto trim = [](std::string part) {
    const auto begin = part.find_first_not_of(" \t");
    const auto end = part.find_last_not_of(" \t");
    return begin == std::string::npos ? std::string() : part.substr(begin, end - begin + 1);
  };
  RawEntry entry{trim(text.substr(0, sign)), fmt::format("--set {}", text), {}};
  const std::string right = trim(text.substr(sign + 1));
  entry.value.kind = RawValue::Kind::kScalar;
  entry.value.scalar = right;
  // A line break would let the value bring keys of its own.
  if (right.find('\n') != std::string::npos) return entry;
  try {
    const toml::table table = toml::parse("value = " + right);
    if (table.size() == 1) entry.value = to_value(*table.get("value"));
  } catch (const toml::parse_error&) {  // A bare word, as "--set model.preset=gpt2-124m".
  }
  return entry;
}

}  // namespace fourfold
