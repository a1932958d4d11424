#pragma once

#include <fmt/core.h>

#include <string>

namespace fourfold::detail {

/// Prints file, line, condition and message to stderr and ends the process with exit code 1.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);

}  // namespace fourfold::detail

/// A broken invariant ends the process with its values; the message is an fmt format with
/// arguments. FF_CHECK is always on and must be cheap against the work around it; FF_DCHECK is for
/// inner loops and on in debug builds only.
#define FF_CHECK(condition, ...)                                                                   \
  (static_cast<bool>(condition) ? static_cast<void>(0)                                             \
                                : ::fourfold::detail::check_failed(__FILE__, __LINE__, #condition, \
                                                                   ::fmt::format(__VA_ARGS__)))

#ifdef NDEBUG
#define FF_DCHECK(condition, ...) static_cast<void>(0)
#else
#define FF_DCHECK(condition, ...) FF_CHECK(condition, __VA_ARGS__)
#endif
