#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"

namespace fourfold {

/// What direct writes to a disk ask of memory, place and length, in bytes.
inline constexpr std::size_t kDirectAlignment = 4096;

/// A file being written, from its start to its end. Nothing is promised to be on the disk before
/// sync(). The destructor closes the file and drops what goes wrong there.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  /// Adds `size` bytes at the end. Large ones are fastest from memory aligned to kDirectAlignment.
  virtual void append(const void* data, std::size_t size) = 0;
  /// fsync: returns when the bytes survive a loss of power.
  virtual void sync() = 0;
  virtual void close() = 0;
};

/// A file being read at offsets of one's choice.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual std::int64_t size() const = 0;
  /// Exactly `size` bytes from `offset`; a file that ends before is an Error.
  virtual void read(std::int64_t offset, void* data, std::size_t size) const = 0;
};

/// The seam to the file system: checkpoints go through it alone, so that tests cut the power at
/// every operation and fill the disk at every write. Failures are Error of kind kData with the
/// system's reason, the path and a hint. Safe to call from several threads.
class Fs {
 public:
  virtual ~Fs() = default;
  /// Makes the file, or empties the one that is there.
  virtual std::unique_ptr<WritableFile> create(const std::string& path) = 0;
  virtual std::unique_ptr<ReadableFile> open(const std::string& path) const = 0;
  /// Takes the place of what has the name `to`, in one step.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// fsync of a directory: names made, renamed or removed in it survive a loss of power.
  virtual void sync_directory(const std::string& path) = 0;
  /// Names in a directory, sorted; none where it does not exist.
  virtual std::vector<std::string> list(const std::string& path) const = 0;
  /// With its parents; one that exists is no error. What it makes survives a loss of power.
  virtual void make_directories(const std::string& path) = 0;
  /// What does not exist is no error.
  virtual void remove_file(const std::string& path) = 0;
  virtual void remove_tree(const std::string& path) = 0;
  virtual bool exists(const std::string& path) const = 0;
  virtual bool is_directory(const std::string& path) const = 0;
  /// Bytes that an ordinary user may still write there.
  virtual std::int64_t free_bytes(const std::string& path) const = 0;
};

/// The files of the operating system.
class PosixFs final : public Fs {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path) override;
  std::unique_ptr<ReadableFile> open(const std::string& path) const override;
  void rename(const std::string& from, const std::string& to) override;
  void sync_directory(const std::string& path) override;
  std::vector<std::string> list(const std::string& path) const override;
  void make_directories(const std::string& path) override;
  void remove_file(const std::string& path) override;
  void remove_tree(const std::string& path) override;
  bool exists(const std::string& path) const override;
  bool is_directory(const std::string& path) const override;
  std::int64_t free_bytes(const std::string& path) const override;
};

/// The Error of a failed call: "cannot write PATH: No space left on device (wanted 8 MiB, free
/// 1 MiB)" with the hint that fits the reason. `system_error` is an errno; `wanted` and `free` are
/// bytes, named where the disk is full and they are not negative.
Error fs_error(int system_error, const std::string& action, const std::string& path,
               std::int64_t wanted = -1, std::int64_t free = -1);

/// The whole of a file of at most `limit` bytes; a larger one is an Error.
std::string read_file(const Fs& fs, const std::string& path, std::int64_t limit);

/// Writes a small file so that a reader, also one after a loss of power, sees all of it or what
/// was there before: temporary name, sync, rename, sync of the directory.
void write_file_atomically(Fs& fs, const std::string& path, const std::string& content);

/// What temporary files end in; whoever finds one that nobody writes may remove it.
inline constexpr const char* kTemporarySuffix = ".tmp";

/// "a/b" of "a" and "b"; "b" where the directory is empty.
std::string join_path(const std::string& directory, const std::string& name);
/// "a" of "a/b"; "." where there is no slash.
std::string parent_path(const std::string& path);

}  // namespace fourfold
