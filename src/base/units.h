#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fourfold {

/// Reads a size: a number with an optional suffix, decimal (k, m, g, t) or binary (KiB, MiB, GiB,
/// TiB; KB, MB, GB are decimal). "64MiB", "1e9", "2m". None where it is not one, is negative, not
/// whole, or beyond 2^62.
std::optional<std::int64_t> parse_size(std::string_view text);

/// "512 B", "1.5 MiB": three significant digits.
std::string format_bytes(std::int64_t bytes);

/// "124,439,808".
std::string format_count(std::int64_t count);

/// "1 h 02 m", "3 m 20 s", "4.2 s".
std::string format_duration(double seconds);

}  // namespace fourfold
