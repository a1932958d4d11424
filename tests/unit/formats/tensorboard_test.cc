#include "formats/tensorboard.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace fourfold {
namespace {

std::string hex(std::string_view bytes) {
  std::string out;
  for (unsigned char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += {kDigits[c >> 4], kDigits[c & 15]};
  }
  return out;
}

TEST(TensorBoard, WritesTheReferenceRecords) {
  EXPECT_EQ(hex(tensorboard_record(tensorboard_version_event(1.0))),
            "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
  EXPECT_EQ(hex(tensorboard_record(tensorboard_scalar_event("loss", 7, 2.5f, 2.0))),
            "1a00000000000000129bd82d09000000000000004010072a0d0a0b0a046c6f73731500002040c2dfec60");
}

TEST(TensorBoard, EachWriterHasAFileOfItsOwn) {
  const std::string folder = testing::TempDir() + "/tensorboard_test/tb";
  std::filesystem::remove_all(folder);
  TensorBoardWriter first(folder), second(folder);
  EXPECT_NE(first.path(), second.path());
  first.add_scalar("loss", 7, 2.5, 2.0);
  std::ifstream in(first.path(), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(bytes.size(), 40u + 42u);
  EXPECT_EQ(bytes.substr(40), tensorboard_record(tensorboard_scalar_event("loss", 7, 2.5f, 2.0)));
  EXPECT_NE(first.path().find("events.out.tfevents."), std::string::npos);
}

TEST(TensorBoard, NegativeAndLargeStepsAreVarints) {
  EXPECT_EQ(tensorboard_scalar_event("a", 300, 0, 0).substr(9, 3), "\x10\xac\x02");
  EXPECT_THROW(TensorBoardWriter("/dev/null/tb"), Error);
}

}  // namespace
}  // namespace fourfold
