#include "formats/file_io.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace fourfold {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;

std::string hint_for(int error_number) {
  switch (error_number) {
    case ENOENT:
      return "check the path; relative paths start at the working directory";
    case EACCES:
    case EPERM:
      return "check the permissions of the file and of its folders";
    case ENOSPC:
    case EDQUOT:
      return "free space on this disk or choose another folder";
    case EISDIR:
      return "give the path of a file, not of a folder";
    case ENOTDIR:
      return "a part of the path is a file, not a folder";
    default:
      return "";
  }
}

void write_fully(int fd, const std::string& path, const std::byte* data, std::size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(fd, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw file_error(path, "cannot write", errno);
    data += n;
    size -= static_cast<std::size_t>(n);
  }
}

}  // namespace

Error file_error(const std::string& path, std::string_view action, int error_number) {
  return Error(ErrorKind::kData,
               fmt::format("{}: {}: {}", path, action, std::strerror(error_number)),
               hint_for(error_number));
}

Result<FileHandle> open_for_reading(const std::string& path) {
  // Non-blocking, so that a named pipe is refused below and never waited for.
  FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return file_error(path, "cannot open", errno);
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return file_error(path, "cannot open", errno);
  if (S_ISDIR(info.st_mode)) return file_error(path, "cannot open", EISDIR);
  if (!S_ISREG(info.st_mode)) {
    return Error(ErrorKind::kData, path + ": not a regular file", "copy it into a file first");
  }
  return file;
}

Result<std::uint64_t> file_size(const FileHandle& file, const std::string& path) {
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return file_error(path, "cannot read", errno);
  return static_cast<std::uint64_t>(info.st_size);
}

Status read_exactly(const FileHandle& file, const std::string& path, std::uint64_t offset,
                    std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = ::pread(file.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error(path, "cannot read", errno);
    if (n == 0) {
      return Error(ErrorKind::kData,
                   fmt::format("{}: ends at byte {}, {} more expected", path, offset, out.size()),
                   "the file was cut off; make it again");
    }
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return Done{};
}

Result<std::string> read_text_file(const std::string& path, std::uint64_t limit) {
  auto file = open_for_reading(path);
  if (!file) return file.error();
  auto size = file_size(file.value(), path);
  if (!size) return size.error();
  if (size.value() > limit) {
    return Error(ErrorKind::kData,
                 fmt::format("{}: {} bytes; at most {} are read", path, size.value(), limit),
                 "no such file is that large; check the path");
  }
  std::string text(size.value(), '\0');
  auto done = read_exactly(file.value(), path, 0, std::as_writable_bytes(std::span(text)));
  if (!done) return done.error();
  return text;
}

void make_parent_folders(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  if (parent.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (error) throw file_error(parent.string(), "cannot create the folder", error.value());
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  auto file = open_for_reading(path);
  if (!file) return file.error();
  auto size = file_size(file.value(), path);
  if (!size) return size.error();
  if (size.value() == 0) return MappedFile();
  void* address = ::mmap(nullptr, size.value(), PROT_READ, MAP_SHARED, file.value().get(), 0);
  if (address == MAP_FAILED) return file_error(path, "cannot map", errno);
  return MappedFile({static_cast<const std::byte*>(address), size.value()});
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), temporary_(path_ + ".tmp") {
  file_ = FileHandle(::open(temporary_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file_.get() < 0) throw file_error(temporary_, "cannot create", errno);
  buffer_.reserve(kBufferBytes);
}

AtomicFile::~AtomicFile() {
  if (file_.get() >= 0) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  if (buffer_.size() + size > kBufferBytes) flush();
  if (size >= kBufferBytes) {
    write_fully(file_.get(), temporary_, bytes, size);
  } else {
    buffer_.insert(buffer_.end(), bytes, bytes + size);
  }
  size_ += size;
}

void AtomicFile::write_at(std::uint64_t offset, const void* data, std::size_t size) {
  flush();
  const auto* bytes = static_cast<const std::byte*>(data);
  while (size > 0) {
    const ssize_t n = ::pwrite(file_.get(), bytes, size, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw file_error(temporary_, "cannot write", errno);
    bytes += n;
    offset += static_cast<std::uint64_t>(n);
    size -= static_cast<std::size_t>(n);
  }
}

void AtomicFile::read_at(std::uint64_t offset, void* out, std::size_t size) {
  flush();
  read_exactly(file_, temporary_, offset, {static_cast<std::byte*>(out), size}).value();
}

void AtomicFile::flush() {
  write_fully(file_.get(), temporary_, buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::sync() {
  flush();
  if (::fsync(file_.get()) != 0) throw file_error(temporary_, "cannot write", errno);
}

void AtomicFile::commit() {
  sync();
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    throw file_error(path_, "cannot rename the finished file to it", errno);
  }
  file_ = FileHandle();
}

void write_text_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace fourfold
