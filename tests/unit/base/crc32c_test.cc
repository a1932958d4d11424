#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace fourfold {
namespace {

// Bit by bit, as the polynomial's definition says.
std::uint32_t by_definition(const std::vector<char>& data, std::size_t size) {
  std::uint32_t state = ~0u;
  for (std::size_t i = 0; i < size; ++i) {
    state ^= static_cast<unsigned char>(data[i]);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) ? 0x82F63B78u : 0);
  }
  return ~state;
}

std::vector<char> some_bytes(std::size_t size) {
  std::vector<char> data(size);
  for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<char>(i * 2654435761u >> 11);
  return data;
}

// Around words, and around blocks of three lanes.
const std::vector<std::size_t> kSizes{0, 1, 7, 8, 9, 4096, 12287, 12288, 12289, 24576, 40001};

TEST(Crc32c, HasTheKnownValue) {
  const std::string digits = "123456789";
  EXPECT_EQ(crc32c(digits.data(), digits.size()), 0xE3069283u);
}

TEST(Crc32c, IsAsDefinedAndGoesOn) {
  const std::vector<char> data = some_bytes(40001);
  for (const std::size_t size : kSizes) {
    const std::uint32_t whole = by_definition(data, size);
    EXPECT_EQ(crc32c(data.data(), size), whole) << size;
    const std::size_t cut = size / 3;
    EXPECT_EQ(crc32c(data.data() + cut, size - cut, crc32c(data.data(), cut)), whole) << size;
  }
}

TEST(Crc32c, CopyHasAllBytesAndNoMore) {
  const std::vector<char> data = some_bytes(40001);
  for (const std::size_t size : kSizes) {
    for (const std::size_t offset : {0u, 3u, 8u}) {
      std::vector<char> copy(size + 16, 'x');
      EXPECT_EQ(copy_with_crc32c(copy.data() + offset, data.data(), size),
                by_definition(data, size));
      EXPECT_EQ(std::memcmp(copy.data() + offset, data.data(), size), 0) << size;
      EXPECT_EQ(std::string(copy.begin(), copy.begin() + static_cast<std::ptrdiff_t>(offset)),
                std::string(offset, 'x'));
      EXPECT_EQ(std::string(copy.begin() + static_cast<std::ptrdiff_t>(offset + size), copy.end()),
                std::string(16 - offset, 'x'));
    }
  }
}

}  // namespace
}  // namespace fourfold
