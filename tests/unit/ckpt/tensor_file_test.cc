#include "ckpt/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/crc32c.h"
#include "formats/safetensors.h"
#include "tests/crash/memory_fs.h"

namespace fourfold {
namespace {

using testing::HasSubstr;

class TensorFileTest : public testing::Test {
 protected:
  void SetUp() override { fs_.make_directories("d"); }

  FileRecord write(const Region& region, DType dtype) {
    const auto bytes = static_cast<std::size_t>(region.elements() * dtype_size(dtype));
    data_.resize(bytes);
    for (std::size_t i = 0; i < bytes; ++i) data_[i] = static_cast<char>(i * 2654435761u >> 13);
    const RegionSource sources[] = {{"first@master", DType::kU8, *Region::parse("[2:5]"), "abc"},
                                    {"w@master", dtype, region, data_.data()}};
    const auto record = write_tensor_file(fs_, "d", "f", sources, {{"format", "fourfold"}});
    EXPECT_EQ(record.size, tensor_file_bytes(sources, {{"format", "fourfold"}}));
    EXPECT_EQ(record.size, static_cast<std::int64_t>(fs_.content("d/f").size()));
    return record;
  }

  /// Reads the region back through boxes, each of which must be a dense run within the limit.
  std::vector<char> read_back(const FileRecord& record) {
    const TensorFile file(fs_, "d", record);
    const StoredRegion& stored = file.regions().at(1);
    std::vector<char> out(static_cast<std::size_t>(stored.bytes));
    const std::int64_t element = dtype_size(stored.dtype);
    file.read(stored, [&](const Region& box, const std::byte* data) {
      EXPECT_LE(box.elements() * element, TensorFile::kBoxBytes);
      copy_region(box, box, data, stored.region, out.data(), element);
      ++boxes_;
    });
    return out;
  }

  MemoryFs fs_;
  std::vector<char> data_;
  int boxes_ = 0;
};

TEST_F(TensorFileTest, RegionsOfEveryFormComeBack) {
  for (const char* name :
       {"[]", "[7:8]", "[3:1000]", "[5:8,2:9,1:4]", "[0:3,0:700000]", "[1:3,4:6,0:1500000]",
        "[0:1,0:1,0:5000001]", "[0:2200000,0:2]", "[2:5,0:1100,0:1000]",
        "[9223372036854775806:9223372036854775807,3:9]"}) {
    const Region region = *Region::parse(name);
    boxes_ = 0;
    EXPECT_EQ(read_back(write(region, DType::kF32)), data_) << name;
    const std::int64_t bytes = region.elements() * 4;
    EXPECT_GE(boxes_, (bytes + TensorFile::kBoxBytes - 1) / TensorFile::kBoxBytes) << name;
    EXPECT_LE(boxes_, 12) << name;
  }
}

TEST_F(TensorFileTest, EveryFlippedByteIsSeenAndTheTensorNamed) {
  const auto record = write(*Region::parse("[1:4,0:5]"), DType::kBF16);
  const auto size = static_cast<std::size_t>(record.size);
  for (std::size_t i = 0; i < size; ++i) {
    fs_.flip("d/f", i);
    std::string cause;
    try {
      read_back(record);
      const TensorFile file(fs_, "d", record);
      file.read(file.regions()[0], [](const Region&, const std::byte*) {});
    } catch (const Error& error) {
      cause = error.what();
    }
    fs_.flip("d/f", i);
    const bool in_first = i + 33 >= size && i + 30 < size;
    EXPECT_THAT(cause, HasSubstr("d/f")) << i;
    if (in_first) {
      EXPECT_THAT(cause, HasSubstr("first@master[2:5]")) << i;
    }
    if (i + 30 >= size) {
      EXPECT_THAT(cause, HasSubstr("w@master[1:4,0:5]")) << i;
    }
  }
}

TEST_F(TensorFileTest, RefusesWhatTheManifestDoesNotSay) {
  auto record = write(*Region::parse("[0:2]"), DType::kF32);
  fs_.content("d/f") += 'x';
  EXPECT_THROW(TensorFile(fs_, "d", record), Error);
  fs_.content("d/f").clear();
  record.size = 0;
  EXPECT_THROW(TensorFile(fs_, "d", record), Error);
}

/// Well-formed safetensors files with the right checksums, whose names or checksums are not ours.
TEST_F(TensorFileTest, RefusesHostileNames) {
  const auto cause = [&](const std::string& name, const std::string& crc) -> std::string {
    std::vector<SafetensorsEntry> entries = {{name, "F32", {2}}};
    std::string file = build_safetensors_header(entries, {{"crc32c:" + name, crc}});
    FileRecord record{"f", static_cast<std::int64_t>(file.size()) + 8, 0, 0};
    record.header_crc = crc32c(file.data(), file.size());
    write_file_atomically(fs_, "d/f", file + std::string(8, '\0'));
    try {
      const TensorFile read(fs_, "d", record);
      return "accepted";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(cause("w@master[0:2]", "00000000"), "accepted");
  EXPECT_THAT(cause("w@master", "00000000"), HasSubstr("not name@kind[region]"));
  EXPECT_THAT(cause("w[0:2]", "00000000"), HasSubstr("not name@kind[region]"));
  EXPECT_THAT(cause("w[0:2]@master", "00000000"), HasSubstr("not name@kind[region]"));
  for (const char* region : {"[0:3]", "[0:2,0:1]", "[2:0]", "[0:2", "[-1:1]", "[a:b]", "[]",
                             "[9223372036854775806:9223372036854775808]"}) {
    EXPECT_THAT(cause(std::string("w@master") + region, "00000000"), HasSubstr("not of its shape"))
        << region;
  }
  for (const char* crc : {"", "0000000", "000000000", "0000000x", "-0000001"}) {
    EXPECT_THAT(cause("w@master[0:2]", crc), HasSubstr("hexadecimal")) << crc;
  }
}

}  // namespace
}  // namespace fourfold
