#pragma once

#include <fmt/core.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace fourfold {

enum class LogLevel { kInfo, kWarning, kError };

/// Where a rank's messages go: a value that is passed, not a global. The sink decides which ranks
/// print and where a copy is kept; it must be safe to call from several threads.
class Log {
 public:
  using Sink = std::function<void(LogLevel, std::string_view)>;

  Log() = default;  ///< Drops everything.
  explicit Log(Sink sink) : sink_(std::move(sink)) {}

  template <class... Args>
  void info(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void warning(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  void error(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  void write(LogLevel level, const std::string& text) const {
    if (sink_) sink_(level, text);
  }

  Sink sink_;
};

}  // namespace fourfold
