#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file_handle.h"

namespace fourfold {

/// "PATH: ACTION: reason of errno", of kind kData, with a hint where the reason has one.
Error file_error(const std::string& path, std::string_view action, int error_number);

/// Opens a regular file for reading. A missing file, a directory or a file without permission is an
/// Error of kind kData.
Result<FileHandle> open_for_reading(const std::string& path);

/// Bytes of an open file.
Result<std::uint64_t> file_size(const FileHandle& file, const std::string& path);

/// Fills `out` from `offset`; an Error where the file ends before.
Status read_exactly(const FileHandle& file, const std::string& path, std::uint64_t offset,
                    std::span<std::byte> out);

/// A whole file as text; an Error where it is larger than `limit` bytes.
Result<std::string> read_text_file(const std::string& path, std::uint64_t limit);

/// Makes the folders that PATH lies in, as far as they are missing. Throws Error.
void make_parent_folders(const std::string& path);

/// A whole file mapped read-only; unmapped with its owner. A file of 0 bytes maps to an empty span.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

/// A file that appears under its name whole or not at all: written to PATH.tmp, synced and renamed
/// by commit(); the temporary file is removed if commit() is never reached. Failures throw Error.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(AtomicFile&&) = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Replaces bytes that were written before.
  void write_at(std::uint64_t offset, const void* data, std::size_t size);
  /// Reads back bytes that were written before.
  void read_at(std::uint64_t offset, void* out, std::size_t size);
  std::uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

  void flush();
  /// Puts the bytes on the disk; the name still stands for what it stood for before.
  void sync();
  /// sync() and rename.
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  FileHandle file_;
  std::vector<std::byte> buffer_;
  std::uint64_t size_ = 0;
};

/// Writes a small text file atomically. Throws Error.
void write_text_file(const std::string& path, std::string_view text);

}  // namespace fourfold
