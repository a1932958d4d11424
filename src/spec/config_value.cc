#include <fmt/core.h>

#include "spec/config_key.h"

namespace fourfold {
namespace {

std::string real_text(double value) {
  std::string text = fmt::format("{}", value);  // The shortest that reads back to the same bits.
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

std::string string_text(const std::string& value) {
  std::string text = "\"";
  for (char c : value) {
    if (c == '"' || c == '\\') {
      text += std::string("\\") + c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      text += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      text += c;
    }
  }
  return text + "\"";
}

template <class T, class Write>
std::string list_text(const std::vector<T>& items, Write write) {
  std::string text = "[";
  for (const T& item : items) text += (text.size() > 1 ? ", " : "") + write(item);
  return text + "]";
}

struct Writer {
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(std::int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return real_text(v); }
  std::string operator()(const std::string& v) const { return string_text(v); }
  std::string operator()(const std::vector<double>& v) const { return list_text(v, real_text); }
  std::string operator()(const std::vector<std::string>& v) const {
    return list_text(v, string_text);
  }
};

}  // namespace

std::string to_toml(const ConfigValue& value) { return std::visit(Writer{}, value); }

}  // namespace fourfold
