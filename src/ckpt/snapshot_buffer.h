#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fourfold {

/// Memory for the image of a rank's tensor files, page-aligned. Where a folder of a memory file
/// system is given and has room, it is a file there, which outlives the process; otherwise memory
/// of the process.
class SnapshotBuffer {
 public:
  SnapshotBuffer() = default;
  SnapshotBuffer(const SnapshotBuffer&) = delete;
  SnapshotBuffer& operator=(const SnapshotBuffer&) = delete;
  ~SnapshotBuffer();

  /// Room for at least so many bytes, whose content is undefined; what is there is kept where it is
  /// large enough. With an empty path, or where a file cannot be had (no such folder, or not enough
  /// room beside what others may need), in memory of the process. Throws Error (kData) where there
  /// is no memory either.
  void reserve(std::int64_t bytes, const std::string& path);

  std::byte* data() const { return data_; }
  std::int64_t capacity() const { return capacity_; }
  /// The file; empty while the memory is the process's own.
  const std::string& path() const { return path_; }

 private:
  void unmap();

  std::byte* data_ = nullptr;
  std::int64_t capacity_ = 0;
  std::string path_;
};

/// The folder for the copies of a run's state in a memory file system, the same for each start of
/// the run (by its id and its folder) by this user; made where it is not there. Only this user can
/// look into it, though everybody may write to the memory file system. Empty where that cannot be:
/// no such file system, or something of another user's in its place.
std::string private_copies_folder(const std::string& memory_dir, const std::string& run_id,
                                  const std::string& checkpoints_dir);

}  // namespace fourfold
