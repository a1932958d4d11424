#include "base/crc32c_combine.h"

#include <gtest/gtest.h>

#include <string>

#include "base/crc32c.h"

namespace fourfold {
namespace {

TEST(Crc32cCombine, IsTheCrcOfTheWhole) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 2654435761u >> 11);
  const std::uint32_t whole = crc32c(text.data(), text.size());
  for (const std::size_t cut : {0u, 1u, 7u, 8u, 255u, 2048u, 4999u, 5000u}) {
    const std::uint32_t first = crc32c(text.data(), cut);
    const std::uint32_t second = crc32c(text.data() + cut, text.size() - cut);
    EXPECT_EQ(crc32c_combine(first, second, text.size() - cut), whole) << cut;
  }
}

TEST(Crc32cCombine, LengthsBeyondThirtyTwoBits) {
  // Zeros behind a message, in two steps or in one.
  const std::uint64_t large = (std::uint64_t{5} << 33) + 3;
  const std::uint32_t start = 0x12345678u;
  const std::uint32_t once = crc32c_combine(start, 0, 2 * large);
  EXPECT_EQ(crc32c_combine(crc32c_combine(start, 0, large), 0, large), once);
}

}  // namespace
}  // namespace fourfold
