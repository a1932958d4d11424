#include "ckpt/snapshot_buffer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "ckpt/fs.h"

namespace fourfold {
namespace {

class SnapshotBufferTest : public testing::Test {
 protected:
  SnapshotBufferTest() {
    char name[] = "/tmp/fourfold-buffer-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~SnapshotBufferTest() override { std::filesystem::remove_all(root_); }
  std::string root_;
};

TEST_F(SnapshotBufferTest, OutlivesItsOwnerInAFile) {
  const std::string path = root_ + "/copy";
  {
    SnapshotBuffer buffer;
    buffer.reserve(5000, path);
    EXPECT_EQ(buffer.path(), path);
    EXPECT_EQ(buffer.capacity(), 8192);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % kDirectAlignment, 0u);
    std::memcpy(buffer.data(), "kept", 4);
    std::byte* before = buffer.data();
    buffer.reserve(8192, path);
    EXPECT_EQ(buffer.data(), before) << "what is large enough stays";
  }
  EXPECT_EQ(read_file(PosixFs(), path, 8192).substr(0, 4), "kept");
  struct stat info{};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u) << "a model is nobody else's business";
  SnapshotBuffer again;
  again.reserve(20000, path);
  EXPECT_EQ(std::filesystem::file_size(path), 20480u);
}

TEST_F(SnapshotBufferTest, FallsBackToOwnMemory) {
  for (const std::string& path : {std::string(), root_ + "/none/copy", root_}) {
    SnapshotBuffer buffer;
    buffer.reserve(100, path);
    EXPECT_EQ(buffer.path(), "");
    std::memset(buffer.data(), 1, 4096);
  }
  // A link that another user laid there is not followed.
  const std::string link = root_ + "/link";
  std::filesystem::create_symlink(root_ + "/elsewhere", link);
  SnapshotBuffer buffer;
  buffer.reserve(100, link);
  EXPECT_EQ(buffer.path(), "");
  EXPECT_FALSE(std::filesystem::exists(root_ + "/elsewhere"));
}

TEST_F(SnapshotBufferTest, MoreThanThereIsIsAnError) {
  SnapshotBuffer buffer;
  try {
    buffer.reserve(std::int64_t{1} << 60, root_ + "/copy");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kData);
  }
  EXPECT_TRUE(std::filesystem::is_empty(root_));
}

TEST_F(SnapshotBufferTest, AFolderIsTheUsersAndTheRunsOwn) {
  const std::string folder = private_copies_folder(root_, "1a", "a/checkpoints");
  ASSERT_NE(folder, "");
  struct stat info{};
  ASSERT_EQ(::stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_EQ(private_copies_folder(root_, "1a", "a/b/../checkpoints"), folder);
  EXPECT_NE(private_copies_folder(root_, "1a", "b/checkpoints"), folder);
  EXPECT_NE(private_copies_folder(root_, "1b", "a/checkpoints"), folder);
  // What others can write to, or have laid there, is not used.
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  EXPECT_EQ(private_copies_folder(root_, "1a", "a/checkpoints"), "");
  std::filesystem::remove(folder);
  std::filesystem::create_directory_symlink(root_, folder);
  EXPECT_EQ(private_copies_folder(root_, "1a", "a/checkpoints"), "");
  EXPECT_EQ(private_copies_folder(root_ + "/none", "1a", "a"), "");
  EXPECT_EQ(private_copies_folder("", "1a", "a"), "");
}

}  // namespace
}  // namespace fourfold
