#include "spec/machine_spec.h"

#include <fmt/core.h>

#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "base/suggest.h"
#include "spec/raw_config.h"

namespace fourfold {
namespace {

/// A key of the file and where its value goes.
struct Field {
  std::string path;
  std::string* text = nullptr;
  double* real = nullptr;
  int* whole = nullptr;
};

std::vector<Field> fields_of(MachineSpec& machine) {
  return {{"machine.name", &machine.name},
          {"machine.source", &machine.source},
          {"node.devices", nullptr, nullptr, &machine.devices},
          {"links.inside.bandwidth", nullptr, &machine.inside.bandwidth},
          {"links.inside.latency", nullptr, &machine.inside.latency},
          {"links.between.bandwidth", nullptr, &machine.between.bandwidth},
          {"links.between.latency", nullptr, &machine.between.latency}};
}

Error refused(const RawEntry& entry, const std::string& cause, const std::string& hint = "") {
  return Error(ErrorKind::kUsage, fmt::format("{}: {} {}", entry.where, entry.path, cause),
               hint.empty() ? "docs/parallel.md describes the machine file" : hint);
}

Status set_field(const Field& field, const RawEntry& entry) {
  const RawScalar& value = entry.value.scalar;
  if (entry.value.kind != RawValue::Kind::kScalar) return refused(entry, "must be one value");
  if (field.text) {
    const auto* text = std::get_if<std::string>(&value);
    if (!text) return refused(entry, "must be a string, not " + entry.value.describe());
    *field.text = *text;
    return Done{};
  }
  const auto* whole = std::get_if<std::int64_t>(&value);
  const auto* real = std::get_if<double>(&value);
  if (field.whole) {
    if (!whole || *whole < 1 || *whole > 1'000'000) {
      return refused(entry,
                     "must be a whole number from 1 to 1000000, not " + entry.value.describe());
    }
    *field.whole = static_cast<int>(*whole);
    return Done{};
  }
  const double number = whole ? static_cast<double>(*whole) : real ? *real : -1;
  if (!(number >= 0) || number > 1e18) {
    return refused(entry, "must be a number from 0, not " + entry.value.describe());
  }
  *field.real = number;
  return Done{};
}

bool is_table(const RawEntry& entry, const std::vector<Field>& fields) {
  for (const Field& field : fields) {
    if (field.path.starts_with(entry.path + ".")) return true;
  }
  return false;
}

}  // namespace

Result<MachineSpec> parse_machine(std::string_view text, const std::string& source) {
  const auto entries = read_toml(text, source);
  if (!entries) return entries.error();
  MachineSpec machine;
  const std::vector<Field> fields = fields_of(machine);
  std::vector<std::string> known;
  for (const Field& field : fields) known.push_back(field.path);
  std::set<std::string> given;
  for (const RawEntry& entry : entries.value()) {
    if (is_table(entry, fields)) continue;
    const Field* found = nullptr;
    for (const Field& field : fields) {
      if (field.path == entry.path) found = &field;
    }
    if (!found) {
      const std::string near = closest(entry.path, known);
      return refused(entry, "is no key of a machine file",
                     near.empty() ? "" : fmt::format("did you mean {}?", near));
    }
    if (const Status status = set_field(*found, entry); !status) return status.error();
    given.insert(entry.path);
  }
  for (const char* path : {"links.inside.bandwidth", "links.between.bandwidth"}) {
    if (given.contains(path)) continue;
    return Error(ErrorKind::kUsage, fmt::format("{}: {} is missing", source, path),
                 "bytes a second, in each direction");
  }
  if (machine.inside.bandwidth <= 0 || machine.between.bandwidth <= 0) {
    return Error(ErrorKind::kUsage, fmt::format("{}: a bandwidth of 0", source),
                 "bytes a second, in each direction");
  }
  return machine;
}

Result<MachineSpec> load_machine(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    return Error(ErrorKind::kUsage, fmt::format("machine file {} cannot be read", path),
                 "machine.file names it, relative to where the program runs");
  }
  return parse_machine(text, path);
}

}  // namespace fourfold
