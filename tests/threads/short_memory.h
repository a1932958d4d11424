#pragma once

namespace fourfold {

/// Allocations of this thread that still succeed before one throws std::bad_alloc; negative: all
/// do. Programs that link short_memory.cc obey it.
extern thread_local int allocations_left;

}  // namespace fourfold
