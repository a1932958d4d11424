#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "base/file_handle.h"
#include "ckpt/direct_writer.h"
#include "ckpt/fs.h"

namespace fourfold {
namespace {

/// Linux moves at most 2^31 - 4096 bytes a call.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;

std::int64_t free_or_unknown(const std::string& path) {
  struct statvfs info{};
  if (::statvfs(path.c_str(), &info) != 0) return -1;
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  void append(const void* data, std::size_t size) override {
    const auto* from = static_cast<const char*>(data);
    const std::size_t direct = append_directly(from, size);
    append_plainly(from + direct, size - direct);
  }

  void sync() override {
    if (::fsync(fd_.get()) != 0) {
      const int reason = errno;
      throw fs_error(reason, "sync", path_, offset_, free_or_unknown(parent_path(path_)));
    }
  }

  void close() override {
    // A network file system may report here that the disk is full.
    if (::close(fd_.release()) != 0) throw fs_error(errno, "close", path_);
  }

 private:
  /// Below this, the page cache is as good.
  static constexpr std::size_t kSmallestDirect = 1 << 20;

  /// Writes what may go past the page cache; returns how much that was.
  std::size_t append_directly(const char* data, std::size_t size) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    const auto place = static_cast<std::uintptr_t>(offset_);
    if (size < kSmallestDirect || (address | place) % kDirectAlignment != 0) return 0;
    if (!tried_direct_) direct_ = DirectWriter::make(fd_.get());
    tried_direct_ = true;
    if (!direct_) return 0;
    size -= size % kDirectAlignment;
    const int failed = direct_->write(reinterpret_cast<const std::byte*>(data), size, offset_);
    if (failed == EINVAL || failed == EOPNOTSUPP) {
      direct_.reset();
      return 0;
    }
    if (failed != 0) throw write_error(failed, size);
    offset_ += static_cast<off_t>(size);
    return size;
  }

  void append_plainly(const char* from, std::size_t size) {
    while (size > 0) {
      const ssize_t n = ::pwrite(fd_.get(), from, std::min(size, kMaxTransfer), offset_);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw write_error(n == 0 ? ENOSPC : errno, size);
#ifdef __linux__
      // The disk begins at once, not when sync() asks for it; whether it did is sync()'s business.
      ::sync_file_range(fd_.get(), offset_, n, SYNC_FILE_RANGE_WRITE);
#endif
      from += n;
      size -= static_cast<std::size_t>(n);
      offset_ += n;
    }
  }

  Error write_error(int reason, std::size_t size) const {
    return fs_error(reason, "write", path_, static_cast<std::int64_t>(size),
                    free_or_unknown(parent_path(path_)));
  }

  FileHandle fd_;
  std::string path_;
  off_t offset_ = 0;
  bool tried_direct_ = false;
  std::unique_ptr<DirectWriter> direct_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(int fd, std::int64_t size, std::string path)
      : fd_(fd), size_(size), path_(std::move(path)) {}

  std::int64_t size() const override { return size_; }

  void read(std::int64_t offset, void* data, std::size_t size) const override {
    char* to = static_cast<char*>(data);
    while (size > 0) {
      const ssize_t n = ::pread(fd_.get(), to, std::min(size, kMaxTransfer), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw fs_error(errno, "read", path_);
      if (n == 0) {
        throw Error(ErrorKind::kData, path_ + " ends before what should be read from it",
                    "the file was cut; use another checkpoint");
      }
      to += n;
      size -= static_cast<std::size_t>(n);
      offset += n;
    }
  }

 private:
  FileHandle fd_;
  std::int64_t size_;
  std::string path_;
};

}  // namespace

std::unique_ptr<WritableFile> PosixFs::create(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) {
    const int reason = errno;
    throw fs_error(reason, "make", path, 0, free_or_unknown(parent_path(path)));
  }
  return std::make_unique<PosixWritableFile>(fd, path);
}

std::unique_ptr<ReadableFile> PosixFs::open(const std::string& path) const {
  // A pipe under this name would make the call wait for a writer.
  FileHandle fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) throw fs_error(errno, "open", path);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) throw fs_error(errno, "look at", path);
  if (!S_ISREG(info.st_mode)) throw Error(ErrorKind::kData, path + " is not a file");
  return std::make_unique<PosixReadableFile>(fd.release(), info.st_size, path);
}

void PosixFs::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int reason = errno;
    throw fs_error(reason, "rename to", to, 0, free_or_unknown(parent_path(to)));
  }
}

void PosixFs::sync_directory(const std::string& path) {
  const FileHandle fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) throw fs_error(errno, "open", path);
  // File systems that cannot sync a directory say EINVAL; they have nothing to sync.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) throw fs_error(errno, "sync", path);
}

std::vector<std::string> PosixFs::list(const std::string& path) const {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator it(path, error);
  for (const std::filesystem::directory_iterator end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error && error.value() != ENOENT) throw fs_error(error.value(), "list", path);
  std::sort(names.begin(), names.end());
  return names;
}

void PosixFs::make_directories(const std::string& path) {
  if (is_directory(path)) return;
  const std::string parent = parent_path(path);
  if (parent != path && parent != ".") make_directories(parent);
  if (::mkdir(path.c_str(), 0777) != 0) {
    const int reason = errno;
    if (reason == EEXIST && is_directory(path)) return;
    throw fs_error(reason, "make", path, 0, free_or_unknown(parent));
  }
  sync_directory(parent);
}

void PosixFs::remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw fs_error(errno, "remove", path);
}

void PosixFs::remove_tree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) throw fs_error(error.value(), "remove", path);
}

bool PosixFs::exists(const std::string& path) const {
  struct stat info{};
  if (::stat(path.c_str(), &info) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  throw fs_error(errno, "look at", path);
}

bool PosixFs::is_directory(const std::string& path) const {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::int64_t PosixFs::free_bytes(const std::string& path) const {
  const std::int64_t bytes = free_or_unknown(path);
  if (bytes < 0) throw fs_error(errno, "look at the space of", path);
  return bytes;
}

}  // namespace fourfold
