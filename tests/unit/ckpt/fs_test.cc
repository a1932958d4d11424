#include "ckpt/fs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

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
