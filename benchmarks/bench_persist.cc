// The rate at which checkpoint images reach the disk: the store's way of writing against plain
// large-block writers, in turn, medians.
//
// usage: bench_persist [folder [MiB [rounds]]]
//
// Each writes one image, which lies in shared memory as a snapshot does, to a file in the folder
// (default: the current one) and syncs it; the files are removed again. `buffered` and `direct`
// write blocks of 8 MiB, the latter past the page cache.

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file_handle.h"
#include "ckpt/fs.h"

namespace fourfold {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kBlock = 8 * kMiB;
constexpr double kMaxSeconds = 300;  ///< No round begins after that.

/// An image of a snapshot: pages of a file in shared memory, which has no name any more.
class Image {
 public:
  explicit Image(std::size_t size) : size_(size) {
    std::string path = "/dev/shm/bench_persist.XXXXXX";
    const FileHandle file(::mkstemp(path.data()));
    if (file.get() < 0) throw fs_error(errno, "make", path);
    ::unlink(path.c_str());
    // Takes the memory now: a page that is missing later would be a fault signal.
    if (const int failed = ::posix_fallocate(file.get(), 0, static_cast<off_t>(size))) {
      throw fs_error(failed, "make", path, static_cast<std::int64_t>(size));
    }
    void* pages = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (pages == MAP_FAILED) throw fs_error(errno, "map", path);
    data_ = static_cast<char*>(pages);
    fill();
  }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  ~Image() { ::munmap(data_, size_); }

  const char* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  /// With what no disk compresses.
  void fill() {
    std::uint64_t state = 1;
    for (std::size_t at = 0; at + sizeof state <= size_; at += sizeof state) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      std::memcpy(data_ + at, &state, sizeof state);
    }
  }

  char* data_ = nullptr;
  std::size_t size_;
};

void write_by_store(const std::string& path, const Image& image) {
  const auto file = PosixFs().create(path);
  file->append(image.data(), image.size());
  file->sync();
  file->close();
}

void write_blocks(const std::string& path, const Image& image, int more_flags) {
  const FileHandle file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | more_flags, 0666));
  if (file.get() < 0) throw fs_error(errno, "make", path);
  for (std::size_t at = 0; at < image.size();) {
    const ssize_t n = ::write(file.get(), image.data() + at, std::min(kBlock, image.size() - at));
    if (n <= 0) throw fs_error(n == 0 ? ENOSPC : errno, "write", path);
    at += static_cast<std::size_t>(n);
  }
  if (::fsync(file.get()) != 0) throw fs_error(errno, "sync", path);
}

struct Writer {
  const char* name;
  void (*write)(const std::string& path, const Image& image);
  std::vector<double> seconds;
};

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

/// Removes the file also where the writing failed.
struct Removed {
  explicit Removed(std::string name) : path(std::move(name)) {}
  Removed(const Removed&) = delete;
  Removed& operator=(const Removed&) = delete;
  ~Removed() { ::unlink(path.c_str()); }
  std::string path;
};

double time_of(const Writer& writer, const std::string& folder, const Image& image) {
  double seconds = 0;
  {
    const Removed file(fmt::format("{}/bench_persist.{}.{}", folder, writer.name, ::getpid()));
    const SteadyClock clock;
    const double begin = clock.seconds();
    writer.write(file.path, image);
    seconds = clock.seconds() - begin;
  }
  // The file system ends with this file before the next begins.
  PosixFs().sync_directory(folder);
  return seconds;
}

bool takes_direct_writes(const std::string& folder) {
  const Removed file(fmt::format("{}/bench_persist.probe.{}", folder, ::getpid()));
  const FileHandle probe(::open(file.path.c_str(), O_WRONLY | O_CREAT | O_DIRECT, 0666));
  return probe.get() >= 0;
}

void report(const std::vector<Writer>& writers, std::size_t size) {
  const auto rate = [&](const Writer& writer) {
    return static_cast<double>(size) / 1e6 / median(writer.seconds);
  };
  double best = 0;
  for (const Writer& writer : writers) {
    if (&writer != &writers.front()) best = std::max(best, rate(writer));
  }
  fmt::print("{:>9} {:>9} {:>9} {:>9} {:>19}\n", "writer", "MB/s", "slowest", "fastest",
             "to the better plain");
  for (const Writer& writer : writers) {
    const auto [least, most] = std::ranges::minmax(writer.seconds);
    const double megabytes = static_cast<double>(size) / 1e6;
    fmt::print("{:>9} {:9.1f} {:9.1f} {:9.1f} {:19.3f}\n", writer.name, rate(writer),
               megabytes / most, megabytes / least, rate(writer) / best);
  }
}

void run(const std::string& folder, std::size_t mebibytes, std::size_t rounds) {
  const auto wanted = static_cast<std::int64_t>(mebibytes * kMiB);
  const std::int64_t free = PosixFs().free_bytes(folder);
  if (free < wanted) throw fs_error(ENOSPC, "write in", folder, wanted, free);
  std::vector<Writer> writers{
      {"store", write_by_store, {}},
      {"buffered", [](const std::string& p, const Image& i) { write_blocks(p, i, 0); }, {}}};
  if (takes_direct_writes(folder)) {
    writers.push_back(
        {"direct", [](const std::string& p, const Image& i) { write_blocks(p, i, O_DIRECT); }, {}});
  } else {
    fmt::print("{} takes no direct writes; compared with the buffered writer alone\n", folder);
  }
  const Image image(mebibytes * kMiB);
  fmt::print("{} MiB to {}, written and synced, {} rounds in turn\n", mebibytes, folder, rounds);
  const SteadyClock clock;
  const double begin = clock.seconds();
  for (std::size_t round = 0; round < rounds && clock.seconds() - begin < kMaxSeconds; ++round) {
    for (std::size_t i = 0; i < writers.size(); ++i) {
      Writer& writer = writers[(i + round) % writers.size()];
      writer.seconds.push_back(time_of(writer, folder, image));
    }
  }
  report(writers, image.size());
}

}  // namespace
}  // namespace fourfold

int main(int argc, char** argv) {
  constexpr std::size_t kMebibytes = 512, kRounds = 7;
  const auto number = [&](int at, std::size_t otherwise) {
    return argc > at ? std::max<std::size_t>(1, std::strtoul(argv[at], nullptr, 10)) : otherwise;
  };
  try {
    fourfold::run(argc > 1 ? argv[1] : ".", number(2, kMebibytes), number(3, kRounds));
  } catch (const fourfold::Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
