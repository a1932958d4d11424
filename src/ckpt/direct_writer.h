#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace fourfold {

/// Writes to a file past the page cache, several requests at a time, so that neither a copy of the
/// bytes nor the wait for each request is paid. io_uring on Linux; chosen by file in CMake.
class DirectWriter {
 public:
  /// None where this build or this system has no such thing: the caller then writes plainly.
  static std::unique_ptr<DirectWriter> make(int file_descriptor);

  virtual ~DirectWriter() = default;
  /// Returns when all is with the disk: 0, or the errno of what failed (EINVAL: this file system
  /// takes no direct writes). Memory, size and offset are multiples of kDirectAlignment.
  virtual int write(const std::byte* data, std::size_t size, std::int64_t offset) = 0;
};

}  // namespace fourfold
