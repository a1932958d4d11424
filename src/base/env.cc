#include "base/env.h"

#include <cstdlib>

namespace fourfold {

std::optional<std::string> env(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::optional<long> env_int(const char* name) {
  const auto text = env(name);
  if (!text || text->empty()) return std::nullopt;
  char* end = nullptr;
  const long value = std::strtol(text->c_str(), &end, 10);
  return *end == '\0' ? std::optional<long>(value) : std::nullopt;
}

}  // namespace fourfold
