#pragma once

#include <optional>
#include <string>

namespace fourfold {

/// The only reader of environment variables.
std::optional<std::string> env(const char* name);

/// env() as an integer; none where it is unset or not a number.
std::optional<long> env_int(const char* name);

}  // namespace fourfold
