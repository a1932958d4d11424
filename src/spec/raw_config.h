#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"

namespace fourfold {

using RawScalar = std::variant<bool, std::int64_t, double, std::string>;

/// A value of a TOML file before anyone knows which type its key wants.
struct RawValue {
  enum class Kind { kScalar, kList, kTable, kOther };  ///< kOther: dates, nested lists.
  Kind kind = Kind::kOther;
  RawScalar scalar;
  std::vector<RawScalar> list;

  /// "the string \"many\"", "the number 3": for messages.
  std::string describe() const;
};

/// One key of a file or of a `--set`, or the head of a table.
struct RawEntry {
  std::string path;   ///< "train.steps".
  std::string where;  ///< "run.toml:7" or "--set train.steps=3".
  RawValue value;
};

/// Reads TOML into its keys, in the order of the file. Errors (kUsage) name line and column.
Result<std::vector<RawEntry>> read_toml(std::string_view text, const std::string& source);

/// Reads "a.b=c". What stands right of the sign is a TOML value; where it is none, a string.
Result<RawEntry> read_override(const std::string& text);

}  // namespace fourfold
