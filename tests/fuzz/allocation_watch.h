#pragma once

#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace fourfold {

/// Ends the process where more bytes are allocated at a time, while it lives, than `limit`: a
/// reader of hostile bytes needs a small multiple of them. One lives at a time, on one thread.
class AllocationWatch {
 public:
  explicit AllocationWatch(std::size_t limit) : limit_(static_cast<std::int64_t>(limit)) {
    // The sanitizer keeps hooks for good.
    [[maybe_unused]] static const int kInstalled =
        __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    live_ = peak_ = 0;
    on_ = true;
  }
  AllocationWatch(const AllocationWatch&) = delete;
  AllocationWatch& operator=(const AllocationWatch&) = delete;
  ~AllocationWatch() {
    on_ = false;
    if (peak_ <= limit_) return;
    std::fprintf(stderr, "%lld bytes were allocated at a time, %lld are allowed\n",
                 static_cast<long long>(peak_), static_cast<long long>(limit_));
    std::abort();
  }

 private:
  static void on_malloc(const volatile void*, std::size_t size) {
    if (!on_) return;
    live_ += static_cast<std::int64_t>(size);
    peak_ = std::max(peak_, live_);
  }
  static void on_free(const volatile void* at) {
    if (on_ && at) live_ -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(at));
  }

  static inline bool on_ = false;
  static inline std::int64_t live_ = 0, peak_ = 0;
  std::int64_t limit_;
};

}  // namespace fourfold
