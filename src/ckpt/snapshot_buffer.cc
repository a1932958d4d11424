#include "ckpt/snapshot_buffer.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/crc32c.h"
#include "base/file_handle.h"
#include "base/units.h"
#include "ckpt/fs.h"

namespace fourfold {
namespace {

constexpr std::int64_t kPage = static_cast<std::int64_t>(kDirectAlignment);

/// Whether a file of that size leaves a tenth of the file system to others, who die of a memory
/// file system that is full.
bool has_room(const std::string& folder, std::int64_t bytes) {
  struct statvfs info{};
  if (::statvfs(folder.c_str(), &info) != 0) return false;
  const auto block = static_cast<std::int64_t>(info.f_frsize);
  const std::int64_t free = static_cast<std::int64_t>(info.f_bavail) * block;
  const std::int64_t total = static_cast<std::int64_t>(info.f_blocks) * block;
  return bytes <= free - total / 10;
}

/// The mapping of a file of that size; null where it cannot be had. The file's room is taken before
/// it is mapped: a memory file system that is full would end the process at a store.
void* map_file(const std::string& path, std::int64_t bytes) {
  if (!has_room(parent_path(path), bytes)) return nullptr;
  const FileHandle file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.get() < 0) return nullptr;
  const bool roomy =
      ::ftruncate(file.get(), bytes) == 0 && ::posix_fallocate(file.get(), 0, bytes) == 0;
  void* data = roomy ? ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                              MAP_SHARED, file.get(), 0)
                     : MAP_FAILED;
  if (data != MAP_FAILED) return data;
  ::unlink(path.c_str());
  return nullptr;
}

}  // namespace

SnapshotBuffer::~SnapshotBuffer() { unmap(); }

void SnapshotBuffer::unmap() {
  if (data_) ::munmap(data_, static_cast<std::size_t>(capacity_));
  data_ = nullptr;
  capacity_ = 0;
  path_.clear();
}

void SnapshotBuffer::reserve(std::int64_t bytes, const std::string& path) {
  const std::int64_t rounded = (bytes + kPage - 1) / kPage * kPage;
  if (rounded <= capacity_) return;
  unmap();
  void* data = path.empty() ? nullptr : map_file(path, rounded);
  if (data) {
    path_ = path;
  } else {
    data = ::mmap(nullptr, static_cast<std::size_t>(rounded), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      throw Error(ErrorKind::kData, "no memory for a snapshot of " + format_bytes(rounded),
                  "set checkpoint.async = false: then checkpoints are written without a copy");
    }
  }
  data_ = static_cast<std::byte*>(data);
  capacity_ = rounded;
}

std::string private_copies_folder(const std::string& memory_dir, const std::string& run_id,
                                  const std::string& checkpoints_dir) {
  std::error_code no_folder;
  const auto absolute = std::filesystem::absolute(checkpoints_dir, no_folder);
  if (memory_dir.empty() || no_folder) return "";
  const std::string name = run_id + absolute.lexically_normal().string();
  const std::string path = join_path(
      memory_dir, fmt::format("fourfold-{}-{:08x}", ::geteuid(), crc32c(name.data(), name.size())));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return "";
  struct stat info{};
  const bool own = ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
                   info.st_uid == ::geteuid() && (info.st_mode & 0077) == 0;
  return own ? path : "";
}

}  // namespace fourfold
