#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "spec/raw_config.h"
#include "spec/run_spec.h"

namespace fourfold {

enum class KeyType { kBool, kWhole, kReal, kString, kRealList, kStringList };

/// A value of the type of its key, in the order of KeyType.
using ConfigValue = std::variant<bool, std::int64_t, double, std::string, std::vector<double>,
                                 std::vector<std::string>>;

/// What a key says of itself beside its name and field.
struct KeyText {
  std::string_view doc;
  std::string_view unit = "";
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::string_view default_text = "";     ///< Where the default follows from other keys.
  std::vector<std::string> choices = {};  ///< Empty: any value.
  std::vector<std::string> later = {};    ///< Choices of parts that are not built yet.
};

/// A key of the run file. The table of these drives parsing, overrides, messages, the printout of
/// the resolved configuration and docs/config.md.
struct ConfigKey {
  std::string path;  ///< "train.steps".
  KeyType type;
  KeyText text;
  /// False: the part is not built yet. get() gives the one value that is accepted, set() does
  /// nothing.
  bool built = true;
  std::function<ConfigValue(const RunSpec&)> get;
  std::function<void(RunSpec&, const ConfigValue&)> set;

  std::string table() const { return path.substr(0, path.rfind('.')); }
  std::string name() const { return path.substr(path.rfind('.') + 1); }
};

/// All keys, table by table in the order of docs/config.md.
const std::vector<ConfigKey>& config_keys();

/// One line on each table, for docs/config.md; empty for an unknown one.
std::string_view table_purpose(std::string_view table);

/// The key of this path; null where there is none.
const ConfigKey* find_key(std::string_view path);

/// "a whole number of at least 1 (steps)", "one of \"none\", \"full\"".
std::string expected(const ConfigKey& key);

/// What the file says as a value of the key. Errors (kUsage) say what was expected.
Result<ConfigValue> convert(const ConfigKey& key, const RawEntry& entry);

/// The value as TOML reads it back.
std::string to_toml(const ConfigValue& value);

}  // namespace fourfold
