#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/fs.h"

namespace fourfold {

/// A file system that has the same bytes under every name, for readers of one file. It counts what
/// is read; to change something is a mistake of the test.
class OneFileFs final : public Fs {
 public:
  /// The bytes outlive this.
  explicit OneFileFs(std::string_view bytes) : bytes_(bytes) {}

  std::int64_t reads() const { return reads_; }
  std::int64_t bytes_read() const { return bytes_read_; }

  std::unique_ptr<ReadableFile> open(const std::string&) const override {
    return std::make_unique<Reader>(*this);
  }
  bool exists(const std::string&) const override { return true; }
  bool is_directory(const std::string&) const override { return false; }
  std::vector<std::string> list(const std::string&) const override { return {}; }
  std::int64_t free_bytes(const std::string&) const override { return 0; }

  std::unique_ptr<WritableFile> create(const std::string&) override { std::abort(); }
  void rename(const std::string&, const std::string&) override { std::abort(); }
  void sync_directory(const std::string&) override { std::abort(); }
  void make_directories(const std::string&) override { std::abort(); }
  void remove_file(const std::string&) override { std::abort(); }
  void remove_tree(const std::string&) override { std::abort(); }

 private:
  class Reader final : public ReadableFile {
   public:
    explicit Reader(const OneFileFs& fs) : fs_(fs) {}
    std::int64_t size() const override { return static_cast<std::int64_t>(fs_.bytes_.size()); }
    void read(std::int64_t offset, void* data, std::size_t size) const override {
      const std::size_t all = fs_.bytes_.size();
      const auto from = static_cast<std::size_t>(offset);
      if (from > all || size > all - from) throw Error(ErrorKind::kData, "past the end");
      if (size > 0) std::memcpy(data, fs_.bytes_.data() + from, size);
      ++fs_.reads_;
      fs_.bytes_read_ += static_cast<std::int64_t>(size);
    }

   private:
    const OneFileFs& fs_;
  };

  std::string_view bytes_;
  mutable std::int64_t reads_ = 0;
  mutable std::int64_t bytes_read_ = 0;
};

}  // namespace fourfold
