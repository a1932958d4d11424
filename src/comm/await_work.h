#pragma once

#include <utility>

#include "base/async.h"
#include "comm/work.h"

namespace fourfold {

/// `co_await finished(work)`: other passes take their turns before this one waits for it.
inline auto finished(Work work) {
  return StandStill([work = std::move(work)]() mutable { work.wait_stream(); });
}

}  // namespace fourfold
