#include "ckpt/shard_image.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/crash/memory_fs.h"

namespace fourfold {
namespace {

std::vector<float> some_floats(std::size_t n) {
  std::vector<float> data(n);
  for (std::size_t i = 0; i < n; ++i) data[i] = static_cast<float>(i * 2654435761u >> 7);
  return data;
}

// Pieces that threads copy are smaller than the large region, and larger than the others.
TEST(ShardImage, IsTheFileHoweverManyThreadsCopy) {
  MemoryFs fs;
  fs.make_directories("d");
  const std::vector<float> large = some_floats(1'300'001), small = some_floats(15);
  const std::map<std::string, std::string> metadata{{"format", "fourfold"}};
  const RegionSource regions[] = {
      {"a@master", DType::kF32, *Region::parse("[0:5,3:6]"), small.data()},
      {"b@master", DType::kF32, *Region::parse("[7:1300008]"), large.data()},
      {"c@master", DType::kF32, *Region::parse("[2:2]"), nullptr},
      {"d@master", DType::kU8, *Region::parse("[0:3]"), small.data()}};
  const FileRecord written = write_tensor_file(fs, "d", "f", regions, metadata);
  const auto& file = fs.content("d/f");
  for (const int threads : {1, 3}) {
    WorkShare share(threads);
    std::vector<std::byte> image(static_cast<std::size_t>(tensor_file_bytes(regions, metadata)));
    const FileRecord record = fill_image(regions, metadata, "f", image.data(), share);
    EXPECT_EQ(record.size, written.size);
    EXPECT_EQ(record.file_crc, written.file_crc) << threads;
    EXPECT_EQ(record.header_crc, written.header_crc) << threads;
    ASSERT_EQ(image.size(), file.size());
    EXPECT_EQ(std::memcmp(image.data(), file.data(), file.size()), 0) << threads;
  }
}

}  // namespace
}  // namespace fourfold
