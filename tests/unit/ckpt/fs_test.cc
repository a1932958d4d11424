#include "ckpt/fs.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "base/file_handle.h"
#include "ckpt/direct_writer.h"

namespace fourfold {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PosixFsTest : public testing::Test {
 protected:
  PosixFsTest() {
    char name[] = "/tmp/fourfold-fs-XXXXXX";
    dir_ = ::mkdtemp(name);
  }
  ~PosixFsTest() override { std::filesystem::remove_all(dir_); }
  std::string at(const std::string& name) const { return join_path(dir_, name); }

  std::string dir_;
  PosixFs fs_;
};

TEST_F(PosixFsTest, WritesReadsAndNames) {
  fs_.make_directories(at("a/b/c"));
  fs_.make_directories(at("a/b/c"));
  write_file_atomically(fs_, at("a/b/f"), "hello");
  write_file_atomically(fs_, at("a/b/f"), "hello again");
  EXPECT_EQ(read_file(fs_, at("a/b/f"), 100), "hello again");
  EXPECT_THAT(fs_.list(at("a/b")), ElementsAre("c", "f"));
  EXPECT_TRUE(fs_.exists(at("a/b/f")));
  EXPECT_FALSE(fs_.is_directory(at("a/b/f")));
  EXPECT_TRUE(fs_.is_directory(at("a/b")));
  fs_.rename(at("a/b"), at("a/d"));
  char bytes[3];
  fs_.open(at("a/d/f"))->read(6, bytes, 3);
  EXPECT_EQ(std::string(bytes, 3), "aga");
  fs_.remove_file(at("a/d/f"));
  fs_.remove_file(at("a/d/f"));
  fs_.remove_tree(at("a"));
  fs_.remove_tree(at("a"));
  EXPECT_FALSE(fs_.exists(at("a")));
  EXPECT_THAT(fs_.list(at("a")), ElementsAre());
  EXPECT_GT(fs_.free_bytes(dir_), 0);
}

struct FreeMemory {
  void operator()(char* p) const { std::free(p); }
};
using AlignedMemory = std::unique_ptr<char, FreeMemory>;

/// Memory as direct writes want it, with no two pages alike.
AlignedMemory aligned_memory(std::size_t size) {
  const std::size_t rounded = (size / kDirectAlignment + 1) * kDirectAlignment;
  AlignedMemory memory(static_cast<char*>(std::aligned_alloc(kDirectAlignment, rounded)));
  for (std::size_t i = 0; i < size; ++i) {
    memory.get()[i] = static_cast<char>((i >> 12) * 31 + i * 7 + (i >> 20));
  }
  return memory;
}

/// Large aligned writes go past the page cache, the odd end and small ones through it: the file is
/// the same.
TEST_F(PosixFsTest, LargeWritesOfEveryAlignment) {
  constexpr std::size_t kSize = (33 << 20) + 4097;
  const AlignedMemory memory = aligned_memory(kSize);
  // The lengths of appends one after the other; what is left over comes last.
  const std::vector<std::vector<std::size_t>> cuts = {
      {}, {1}, {4096}, {4096, 17 << 20}, {8 << 20, 8 << 20, 4095}, {(2 << 20) + 1, 3 << 20}};
  for (const auto& lengths : cuts) {
    const auto file = fs_.create(at("large"));
    std::size_t done = 0;
    for (const std::size_t n : lengths) {
      file->append(memory.get() + done, n);
      done += n;
    }
    file->append(memory.get() + done, kSize - done);
    file->sync();
    file->close();
    const std::string read = read_file(fs_, at("large"), kSize);
    ASSERT_EQ(read.size(), kSize);
    EXPECT_EQ(std::memcmp(read.data(), memory.get(), kSize), 0);
  }
}

/// The same by the direct writer alone, in more blocks than it has requests.
TEST_F(PosixFsTest, TheDirectWriterWritesEveryBlock) {
  constexpr std::size_t kSize = 70 << 20, kFirst = 4096 * 3;
  const AlignedMemory memory = aligned_memory(kSize);
  const FileHandle file(::open(at("direct").c_str(), O_RDWR | O_CREAT, 0600));
  const auto writer = DirectWriter::make(file.get());
  if (!writer) GTEST_SKIP() << "this build or this system has no io_uring";
  const auto* bytes = reinterpret_cast<const std::byte*>(memory.get());
  int failed = writer->write(bytes, kFirst, 0);
  if (failed == EINVAL) GTEST_SKIP() << "no direct writes to " << dir_;
  if (failed == 0) failed = writer->write(bytes + kFirst, kSize - kFirst, kFirst);
  ASSERT_EQ(failed, 0);
  const std::string read = read_file(fs_, at("direct"), kSize);
  ASSERT_EQ(read.size(), kSize);
  EXPECT_EQ(std::memcmp(read.data(), memory.get(), kSize), 0);
  // Memory that is not aligned is refused, and said so.
  EXPECT_EQ(writer->write(bytes + 1, 1 << 20, 0), EINVAL);
  // As is a file that was opened for reading.
  const FileHandle reading(::open(at("direct").c_str(), O_RDONLY));
  EXPECT_EQ(DirectWriter::make(reading.get())->write(bytes, 1 << 20, 0), EBADF);
}

/// A file may be no larger than the process's limit: as a full disk cuts a large write short.
TEST_F(PosixFsTest, ALargeWriteThatDoesNotFitIsAnError) {
  constexpr std::size_t kSize = 24 << 20;
  const AlignedMemory memory = aligned_memory(kSize);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{10 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string cause;
  try {
    fs_.create(at("large"))->append(memory.get(), kSize);
  } catch (const Error& error) {
    cause = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(cause, HasSubstr("cannot write " + at("large") + ": File too large"));
}

TEST_F(PosixFsTest, ErrorsSayWhatAndWhere) {
  const auto cause = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kData);
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(cause([&] { fs_.open(at("none")); }), HasSubstr("none: No such file"));
  EXPECT_THAT(cause([&] { fs_.open(dir_); }), HasSubstr("is not a file"));
  EXPECT_THAT(cause([&] { fs_.create(at("no/where")); }), HasSubstr("no/where"));
  EXPECT_THAT(cause([&] { fs_.rename(at("x"), at("y")); }), HasSubstr("cannot rename"));
  EXPECT_THAT(cause([&] { fs_.sync_directory(at("x")); }), HasSubstr("No such file"));
  write_file_atomically(fs_, at("f"), "12345");
  EXPECT_THAT(cause([&] { read_file(fs_, at("f"), 4); }), HasSubstr("more than"));
  EXPECT_THAT(cause([&] { fs_.make_directories(at("f/g")); }), HasSubstr("/f: File exists"));
  char byte;
  EXPECT_THAT(cause([&] { fs_.open(at("f"))->read(5, &byte, 1); }), HasSubstr("ends before"));
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  EXPECT_THAT(cause([&] { fs_.open(at("pipe")); }), HasSubstr("is not a file"));
}

TEST_F(PosixFsTest, AFullDiskSaysHowMuchWasWanted) {
  // The device that is always full.
  if (!fs_.exists("/dev/full")) GTEST_SKIP();
  const auto file = fs_.create("/dev/full");
  try {
    file->append("123456", 6);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("No space left on device (wanted 6 B, free"));
    EXPECT_THAT(error.hint(), HasSubstr("keep_latest"));
  }
}

TEST(FsPaths, JoinAndParent) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(parent_path("a/b/c"), "a/b");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("a"), ".");
}

}  // namespace
}  // namespace fourfold
