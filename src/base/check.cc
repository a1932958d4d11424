#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace fourfold::detail {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  fmt::print(stderr, "internal error: {}:{}: {} does not hold: {}\n", file, line, condition,
             message);
  std::fflush(nullptr);
  std::_Exit(1);
}

}  // namespace fourfold::detail
