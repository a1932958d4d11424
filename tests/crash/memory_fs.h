#pragma once

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "ckpt/fs.h"

namespace fourfold {

/// A file system in memory that keeps apart what was said and what was synced: power_loss() forgets
/// the rest, in whole or in part. Every call that changes something is an operation; at one of them
/// the power can fail (that call is done in part or not at all, all later calls fail) or the disk
/// can be full.
class MemoryFs final : public Fs {
 public:
  /// How much of what was not synced survives.
  enum class Survival { kNothing, kEverything, kSome };

  // Faults, counted in operations from 1; 0: none.
  long crash_at = 0;
  long full_at = 0;                               ///< This operation alone finds the disk full.
  std::int64_t capacity = std::int64_t{1} << 40;  ///< Bytes of all files together.

  long operations() const { return operations_; }
  bool crashed() const { return crashed_; }
  /// All operations so far: "sync PATH" for example.
  const std::vector<std::string>& trace() const { return trace_; }

  /// Starts again after a crash with what survived; the number decides what that is (kSome).
  void power_loss(Survival survival, unsigned number) {
    const std::lock_guard lock(mutex_);
    std::mt19937 random(number);
    for (auto& [directory, pending] : pending_) {
      std::size_t kept = survival == Survival::kNothing ? 0 : pending.size();
      if (survival == Survival::kSome && kept > 0) kept = random() % (kept + 1);
      for (std::size_t i = 0; i < kept; ++i) pending[i].apply(durable_);
    }
    pending_.clear();
    for (auto& [path, inode] : durable_) {
      if (inode) inode->lose_unsynced(survival, random);
    }
    // A directory that did not survive takes what is in it along.
    std::erase_if(durable_, [&](const auto& entry) { return !reachable(entry.first); });
    live_ = durable_;
    crashed_ = false;
    crash_at = full_at = 0;
    operations_ = 0;
  }

  /// Changes one byte of a file as it lies on the disk.
  void flip(const std::string& path, std::size_t offset, unsigned char mask = 1) {
    const Node inode = inode_at(path);
    inode->data[offset] ^= static_cast<char>(mask);
    if (offset < inode->synced.size()) inode->synced[offset] ^= static_cast<char>(mask);
  }
  std::string& content(const std::string& path) { return inode_at(path)->data; }
  std::vector<std::string> files() const {
    std::vector<std::string> paths;
    for (const auto& [path, inode] : live_) {
      if (inode) paths.push_back(path);
    }
    return paths;
  }
  int open_files() const { return open_files_; }

  std::unique_ptr<WritableFile> create(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    operation("make", path);
    require_directory(parent_path(path));
    auto inode = std::make_shared<Inode>();
    change(parent_path(path), {{path, inode}});
    return std::make_unique<Writer>(*this, path, inode);
  }

  std::unique_ptr<ReadableFile> open(const std::string& path) const override {
    const std::lock_guard lock(mutex_);
    if (crashed_) throw fs_error(EIO, "open", path);
    const auto found = live_.find(path);
    if (found == live_.end() || !found->second) throw fs_error(ENOENT, "open", path);
    return std::make_unique<Reader>(*this, path, found->second);
  }

  void rename(const std::string& from, const std::string& to) override {
    const std::lock_guard lock(mutex_);
    operation("rename to", to);
    const auto found = live_.find(from);
    if (found == live_.end()) throw fs_error(ENOENT, "rename to", to);
    Change moved;
    for (const auto& [path, inode] : live_) {
      if (path != from && !path.starts_with(from + "/")) continue;
      moved.push_back({path, std::nullopt});
      moved.push_back({to + path.substr(from.size()), inode});
    }
    change(parent_path(to), moved);
  }

  void sync_directory(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    operation("sync", path);
    require_directory(path);
    for (const Pending& p : pending_[path]) p.apply(durable_);
    pending_[path].clear();
  }

  std::vector<std::string> list(const std::string& path) const override {
    const std::lock_guard lock(mutex_);
    if (crashed_) throw fs_error(EIO, "list", path);
    std::vector<std::string> names;
    for (const auto& [entry, inode] : live_) {
      if (parent_path(entry) == path) names.push_back(entry.substr(path.size() + 1));
    }
    return names;
  }

  void make_directories(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    if (path == "." || live_.contains(path)) return;
    operation("make", path);
    for (std::string p = path; p != "." && p != "/"; p = parent_path(p)) {
      live_[p] = durable_[p] = nullptr;
    }
  }

  void remove_file(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    operation("remove", path);
    if (live_.contains(path)) change(parent_path(path), {{path, std::nullopt}});
  }

  /// One operation for each name, as it is on a disk; those that sort last go first.
  void remove_tree(const std::string& path) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> doomed;
    for (const auto& [entry, inode] : live_) {
      if (entry == path || entry.starts_with(path + "/")) doomed.push_back(entry);
    }
    for (auto entry = doomed.rbegin(); entry != doomed.rend(); ++entry) {
      operation("remove", *entry);
      change(parent_path(*entry), {{*entry, std::nullopt}});
    }
  }

  bool exists(const std::string& path) const override {
    const std::lock_guard lock(mutex_);
    if (crashed_) throw fs_error(EIO, "look at", path);
    return live_.contains(path);
  }

  bool is_directory(const std::string& path) const override {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(path);
    return path == "." || (found != live_.end() && !found->second);
  }

  std::int64_t free_bytes(const std::string&) const override {
    return reported_free >= 0 ? reported_free : capacity - used();
  }
  std::int64_t reported_free = -1;  ///< What free_bytes says instead of the truth.

 private:
  struct Inode {
    std::string data;
    std::string synced;

    void lose_unsynced(Survival survival, std::mt19937& random) {
      if (survival == Survival::kNothing) data = synced;
      if (survival == Survival::kSome && data != synced) {
        // The length may be there before the bytes: a torn file ends in zeros.
        data.resize(random() % (data.size() + 1));
        if (!data.empty() && random() % 2) {
          const std::size_t torn = random() % data.size();
          std::fill(data.begin() + static_cast<std::ptrdiff_t>(torn), data.end(), '\0');
        }
      }
      synced = data;
    }
  };
  using Node = std::shared_ptr<Inode>;  ///< Null: a directory.
  using Names = std::map<std::string, Node>;
  using Change = std::vector<std::pair<std::string, std::optional<Node>>>;
  struct Pending {
    Change change;
    void apply(Names& names) const {
      for (const auto& [path, node] : change) {
        if (node) {
          names[path] = *node;
        } else {
          names.erase(path);
        }
      }
    }
  };

  class Writer final : public WritableFile {
   public:
    Writer(MemoryFs& fs, std::string path, Node inode)
        : fs_(fs), path_(std::move(path)), inode_(std::move(inode)) {
      ++fs_.open_files_;
    }
    ~Writer() override {
      const std::lock_guard lock(fs_.mutex_);
      --fs_.open_files_;
    }
    void append(const void* data, std::size_t size) override {
      const std::lock_guard lock(fs_.mutex_);
      const std::string_view bytes(static_cast<const char*>(data), size);
      try {
        fs_.operation("write", path_);
      } catch (...) {
        inode_->data += bytes.substr(0, size / 2);  // What was under way is done in part.
        throw;
      }
      const std::int64_t free = fs_.capacity - fs_.used();
      if (free < static_cast<std::int64_t>(size)) {
        inode_->data += bytes.substr(0, static_cast<std::size_t>(std::max<std::int64_t>(free, 0)));
        throw fs_error(ENOSPC, "write", path_, static_cast<std::int64_t>(size), free);
      }
      inode_->data += bytes;
    }
    void sync() override {
      const std::lock_guard lock(fs_.mutex_);
      fs_.operation("sync", path_);
      inode_->synced = inode_->data;
    }
    void close() override {
      const std::lock_guard lock(fs_.mutex_);
      fs_.operation("close", path_);
    }

   private:
    MemoryFs& fs_;
    std::string path_;
    Node inode_;
  };

  class Reader final : public ReadableFile {
   public:
    Reader(const MemoryFs& fs, std::string path, Node inode)
        : fs_(fs), path_(std::move(path)), inode_(std::move(inode)) {
      ++fs_.open_files_;
    }
    ~Reader() override {
      const std::lock_guard lock(fs_.mutex_);
      --fs_.open_files_;
    }
    std::int64_t size() const override { return static_cast<std::int64_t>(inode_->data.size()); }
    void read(std::int64_t offset, void* data, std::size_t size) const override {
      const std::lock_guard lock(fs_.mutex_);
      if (static_cast<std::size_t>(offset) + size > inode_->data.size()) {
        throw Error(ErrorKind::kData, path_ + " ends before what should be read from it");
      }
      std::memcpy(data, inode_->data.data() + offset, size);
    }

   private:
    const MemoryFs& fs_;
    std::string path_;
    Node inode_;
  };

  void operation(const char* action, const std::string& path) {
    if (crashed_) throw fs_error(EIO, action, path);
    ++operations_;
    trace_.push_back(std::string(action) + " " + path);
    if (operations_ == crash_at) {
      crashed_ = true;
      throw fs_error(EIO, action, path);
    }
    if (operations_ == full_at) throw fs_error(ENOSPC, action, path, 1, 0);
  }

  void change(const std::string& directory, Change change) {
    Pending pending{std::move(change)};
    pending.apply(live_);
    pending_[directory].push_back(std::move(pending));
  }

  void require_directory(const std::string& path) const {
    const auto found = live_.find(path);
    if (path != "." && (found == live_.end() || found->second)) {
      throw fs_error(ENOENT, "write in", path);
    }
  }

  bool reachable(const std::string& path) const {
    const std::string parent = parent_path(path);
    return parent == "." || parent == "/" || (durable_.contains(parent) && reachable(parent));
  }

  std::int64_t used() const {
    std::int64_t bytes = 0;
    for (const auto& [path, inode] : live_) {
      if (inode) bytes += static_cast<std::int64_t>(inode->data.size());
    }
    return bytes;
  }

  Node inode_at(const std::string& path) { return live_.at(path); }

  mutable std::mutex mutex_;
  Names live_;                                           ///< What programs see.
  Names durable_;                                        ///< What is on the disk for certain.
  std::map<std::string, std::vector<Pending>> pending_;  ///< By directory, in order.
  long operations_ = 0;
  std::vector<std::string> trace_;
  bool crashed_ = false;
  mutable int open_files_ = 0;
};

/// What a power loss can leave: arguments of power_loss().
struct Survivor {
  MemoryFs::Survival survival;
  unsigned number;
};

/// Nothing, everything, and that many times some of it.
inline std::vector<Survivor> survivors(unsigned some) {
  std::vector<Survivor> all = {{MemoryFs::Survival::kNothing, 0},
                               {MemoryFs::Survival::kEverything, 0}};
  for (unsigned n = 1; n <= some; ++n) all.push_back({MemoryFs::Survival::kSome, n});
  return all;
}

}  // namespace fourfold
