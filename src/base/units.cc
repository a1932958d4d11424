#include "base/units.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

namespace fourfold {
namespace {

std::optional<double> suffix_factor(std::string_view suffix) {
  static constexpr std::array<std::pair<std::string_view, double>, 17> kFactors{{
      {"", 1},
      {"b", 1},
      {"k", 1e3},
      {"kb", 1e3},
      {"m", 1e6},
      {"mb", 1e6},
      {"g", 1e9},
      {"gb", 1e9},
      {"t", 1e12},
      {"tb", 1e12},
      {"kib", 0x1p10},
      {"mib", 0x1p20},
      {"gib", 0x1p30},
      {"tib", 0x1p40},
      {"ki", 0x1p10},
      {"mi", 0x1p20},
      {"gi", 0x1p30},
  }};
  std::string lower;
  for (char c : suffix) {
    if (c != ' ') lower += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  }
  for (const auto& [name, factor] : kFactors) {
    if (name == lower) return factor;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> parse_size(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  if (end == copy.c_str()) return std::nullopt;
  const auto factor = suffix_factor(std::string_view(end));
  if (!factor) return std::nullopt;
  const double value = number * *factor;
  if (!(value >= 0) || value > 0x1p62 || value != std::floor(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::string format_bytes(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits{"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.3g} {}", value, kUnits[unit]);
}

std::string format_count(std::int64_t count) {
  std::string digits = std::to_string(count < 0 ? -count : count);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return count < 0 ? "-" + digits : digits;
}

std::string format_duration(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds);
  if (whole < 3600) return fmt::format("{} m {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} m", whole / 3600, whole % 3600 / 60);
}

}  // namespace fourfold
