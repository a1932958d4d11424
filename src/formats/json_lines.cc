#include "formats/json_lines.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>

namespace fourfold {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxMetricsBytes = 4'000'000'000;

std::string json_text(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

JsonLine& JsonLine::add_raw(std::string_view name, std::string_view json) {
  members_ += fmt::format("{}{}: {}", members_.empty() ? "" : ", ", json_text(name), json);
  return *this;
}

JsonLine& JsonLine::add(std::string_view name, double value) {
  // The shortest text that reads back as the same number.
  return add_raw(name, std::isfinite(value) ? fmt::format("{}", value) : "null");
}

JsonLine& JsonLine::add(std::string_view name, std::int64_t value) {
  return add_raw(name, std::to_string(value));
}

JsonLine& JsonLine::add(std::string_view name, bool value) {
  return add_raw(name, value ? "true" : "false");
}

JsonLine& JsonLine::add(std::string_view name, std::string_view value) {
  return add_raw(name, json_text(value));
}

JsonLine& JsonLine::add(std::string_view name, std::span<const std::int64_t> values) {
  return add_raw(name, fmt::format("[{}]", fmt::join(values, ", ")));
}

JsonLinesFile::JsonLinesFile(const std::string& path) : path_(path) {
  file_ = FileHandle(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file_.get() < 0) throw file_error(path, "cannot open", errno);
  const off_t size = ::lseek(file_.get(), 0, SEEK_END);
  char last = '\n';
  if (size > 0 && ::pread(file_.get(), &last, 1, size - 1) == 1 && last != '\n') {
    if (::write(file_.get(), "\n", 1) != 1) throw file_error(path, "cannot write", errno);
  }
}

void JsonLinesFile::write(const JsonLine& line) {
  const std::string text = line.text() + "\n";
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(file_.get(), text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw file_error(path_, "cannot write", errno);
    at += static_cast<std::size_t>(n);
  }
}

Result<std::vector<NumberLine>> read_number_lines(const std::string& path) {
  const auto text = read_text_file(path, kMaxMetricsBytes);
  if (!text) return text.error();
  std::vector<NumberLine> lines;
  std::string_view rest = text.value();
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const Json object = Json::parse(line.begin(), line.end(), nullptr, false);
    if (!object.is_object()) continue;
    NumberLine& read = lines.emplace_back();
    for (const auto& [name, value] : object.items()) {
      if (value.is_number()) read.numbers[name] = value.get<double>();
      if (!value.is_array() || !std::ranges::all_of(value, &Json::is_number)) continue;
      read.lists[name] = value.get<std::vector<double>>();
    }
  }
  return lines;
}

Result<std::string> json_string_member(std::string_view object, const std::string& field) {
  const Json json = Json::parse(object.begin(), object.end(), nullptr, false);
  if (json.is_discarded()) return Error(ErrorKind::kData, "not valid JSON");
  if (!json.is_object()) return Error(ErrorKind::kData, "not a JSON object");
  const auto it = json.find(field);
  if (it == json.end() || !it->is_string()) {
    return Error(ErrorKind::kData, fmt::format("no string member '{}'", field));
  }
  return it->get<std::string>();
}

}  // namespace fourfold
