#pragma once

#include <cstdint>

namespace fourfold {

/// What the caching allocator holds, over all threads, in bytes.
struct AllocatorStats {
  std::int64_t in_use = 0;       ///< Asked for by live blocks.
  std::int64_t peak_in_use = 0;  ///< The most of it since the start or reset_peak().
  /// Taken from the system: live and cached blocks, rounded up to their size classes.
  std::int64_t from_system = 0;
  std::int64_t system_allocations = 0;  ///< How often; stops growing in the steady state.
};

/// Makes LibTorch's CPU tensors come from free lists per thread instead of the system, where fresh
/// pages would cost memory-bound work up to 4x. Blocks of 2 MiB and more are aligned to huge pages
/// and ask for them. A block freed by another thread goes to that thread's lists, and to shared
/// ones when those are long; lists of ended threads are taken over by the others. Call it first in
/// main; a second call does nothing. In a build with AddressSanitizer or ThreadSanitizer it does
/// nothing at all, for their sake.
void install_caching_allocator();

/// All zero unless the allocator is installed.
AllocatorStats allocator_stats();

/// Starts the peak anew from what is in use.
void reset_allocator_peak();

/// Gives the cached blocks of the calling thread and of ended threads back to the system.
void release_cached_memory();

}  // namespace fourfold
