#pragma once

namespace fourfold {

/// A file descriptor that is closed with its owner; -1 is none.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept : fd_(other.release()) {}
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();

  int get() const { return fd_; }
  int release();

 private:
  int fd_ = -1;
};

}  // namespace fourfold
