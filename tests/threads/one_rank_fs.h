#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "ckpt/fs.h"

namespace fourfold {

/// A file system of one rank's own over a shared one, which fails, dawdles or stands still there.
class OneRankFs final : public Fs {
 public:
  OneRankFs(Fs& base, bool affected) : base_(base), affected_(affected) {}
  std::string refuse_to_create;  ///< Part of the path of a file that cannot be made.
  std::string refuse_to_open;
  double create_seconds = 0;
  mutable int shards_opened = 0;
  std::atomic<bool> stands_still = false;  ///< No file is made until it is false again.

  std::unique_ptr<WritableFile> create(const std::string& path) override {
    if (affected_ && !refuse_to_create.empty() && path.find(refuse_to_create) != path.npos) {
      throw fs_error(ENOSPC, "make", path, 100, 5);
    }
    if (affected_) {
      std::this_thread::sleep_for(std::chrono::duration<double>(create_seconds));
      stands_still.wait(true);
    }
    return base_.create(path);
  }
  std::unique_ptr<ReadableFile> open(const std::string& path) const override {
    if (path.ends_with(".safetensors")) ++shards_opened;
    if (affected_ && !refuse_to_open.empty() && path.find(refuse_to_open) != path.npos) {
      throw fs_error(EIO, "open", path);
    }
    return base_.open(path);
  }
  void rename(const std::string& from, const std::string& to) override { base_.rename(from, to); }
  void sync_directory(const std::string& path) override { base_.sync_directory(path); }
  std::vector<std::string> list(const std::string& path) const override { return base_.list(path); }
  void make_directories(const std::string& path) override { base_.make_directories(path); }
  void remove_file(const std::string& path) override { base_.remove_file(path); }
  void remove_tree(const std::string& path) override { base_.remove_tree(path); }
  bool exists(const std::string& path) const override { return base_.exists(path); }
  bool is_directory(const std::string& path) const override { return base_.is_directory(path); }
  std::int64_t free_bytes(const std::string& path) const override { return base_.free_bytes(path); }

  /// Lets what stands still go on.
  void release() {
    stands_still = false;
    stands_still.notify_all();
  }

 private:
  Fs& base_;
  bool affected_;
};

}  // namespace fourfold
