#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/file_io.h"

namespace fourfold {

/// One JSON object on one line, members in the order they are added. Numbers keep full precision;
/// NaN and infinity, which JSON lacks, become null.
class JsonLine {
 public:
  JsonLine& add(std::string_view name, double value);
  JsonLine& add(std::string_view name, std::int64_t value);
  JsonLine& add(std::string_view name, int value) {
    return add(name, static_cast<std::int64_t>(value));
  }
  JsonLine& add(std::string_view name, bool value);
  JsonLine& add(std::string_view name, std::string_view value);
  JsonLine& add(std::string_view name, const char* value) {
    return add(name, std::string_view(value));
  }
  JsonLine& add(std::string_view name, std::span<const std::int64_t> values);

  /// Without a line feed.
  std::string text() const { return "{" + members_ + "}"; }

 private:
  JsonLine& add_raw(std::string_view name, std::string_view json);
  std::string members_;
};

/// A file of JSON lines that grows: each line is there for readers when write() returns. What an
/// earlier process left stays; a line it left half written is closed first. Failures throw Error.
class JsonLinesFile {
 public:
  explicit JsonLinesFile(const std::string& path);
  void write(const JsonLine& line);

 private:
  std::string path_;
  FileHandle file_;
};

/// The numbers of a line of JSON, and its lists of numbers, by name.
struct NumberLine {
  std::map<std::string, double> numbers;
  std::map<std::string, std::vector<double>> lists;
};

/// The lines of a file of JSON lines; members that are no numbers or lists of them are left out,
/// and so are lines that are no objects (a killed writer's last one).
Result<std::vector<NumberLine>> read_number_lines(const std::string& path);

/// The string member `field` of a JSON object; the Error's message is the cause alone, for a caller
/// that adds file and line.
Result<std::string> json_string_member(std::string_view object, const std::string& field);

}  // namespace fourfold
