#include "formats/token_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace fourfold {
namespace {

std::string temp(const std::string& name) { return testing::TempDir() + "/token_file_" + name; }

std::string file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (unsigned char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += {kDigits[c >> 4], kDigits[c & 15]};
  }
  return out;
}

void write_two_documents(const std::string& prefix, TokenType type) {
  TokenFileWriter writer(prefix, type);
  const std::int32_t first[] = {1, 2, 3}, second[] = {4, 5};
  writer.append(first);
  writer.end_document();
  writer.append(second);
  writer.end_document();
  writer.finish();
}

std::string open_error(const std::string& prefix) {
  const auto file = TokenFile::open(prefix);
  if (file.ok()) return "accepted";
  EXPECT_EQ(file.error().kind(), ErrorKind::kData);
  EXPECT_FALSE(file.error().hint().empty());
  return file.error().what();
}

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << (text) << " lacks " << (part)

TEST(TokenFile, WritesMegatronsBytes) {
  write_two_documents(temp("vector"), TokenType::kI32);
  EXPECT_EQ(
      hex(file_bytes(temp("vector.idx"))),
      "4d4d494449445800000100000000000000040200000000000000030000000000000003000000020000000000"
      "0000000000000c00000000000000000000000000000001000000000000000200000000000000");
  EXPECT_EQ(hex(file_bytes(temp("vector.bin"))), "0100000002000000030000000400000005000000");
  EXPECT_FALSE(std::filesystem::exists(temp("vector.bin.tmp")));
}

TEST(TokenFile, ReadsEveryType) {
  for (const TokenType type : {TokenType::kU8, TokenType::kI8, TokenType::kI16, TokenType::kI32,
                               TokenType::kI64, TokenType::kU16}) {
    write_two_documents(temp("types"), type);
    const auto file = TokenFile::open(temp("types")).value();
    EXPECT_EQ(file.index().type(), type);
    EXPECT_EQ(file.size(), 5);
    EXPECT_EQ(file.index().documents(), 2);
    EXPECT_EQ(file.index().sequence_begin(1), 3);
    EXPECT_EQ(file.index().sequence_length(1), 2);
    EXPECT_EQ(file.index().document_begin(2), 2);
    std::int64_t wide[3];
    file.read(1, 3, wide);
    EXPECT_EQ(std::vector<std::int64_t>(wide, wide + 3), (std::vector<std::int64_t>{2, 3, 4}));
    std::int32_t narrow[5];
    file.read(0, 5, narrow);
    EXPECT_EQ(narrow[4], 5);
  }
}

TEST(TokenFile, HoldsTheEndsOfItsTypes) {
  TokenFileWriter writer(temp("ends"), TokenType::kU16);
  const std::int32_t most[] = {0, 65535}, beyond[] = {65536}, negative[] = {-1};
  writer.append(most);
  EXPECT_THROW(writer.append(beyond), Error);
  EXPECT_THROW(writer.append(negative), Error);
  writer.end_document();
  writer.finish();
  std::int64_t read[2];
  TokenFile::open(temp("ends")).value().read(0, 2, read);
  EXPECT_EQ(read[1], 65535);
  EXPECT_EQ(token_type_for_vocab(65'499), TokenType::kU16);
  EXPECT_EQ(token_type_for_vocab(65'500), TokenType::kI32);
}

TEST(TokenFile, CutsLongDocumentsIntoSequences) {
  TokenFileWriter writer(temp("long"), TokenType::kU8, /*max_sequence=*/2);
  const std::int32_t five[] = {1, 2, 3, 4, 5}, two[] = {6, 7};
  writer.append(five);
  writer.end_document();
  writer.end_document();  // Empty.
  writer.append(two);
  writer.finish();
  const auto file = TokenFile::open(temp("long")).value();
  EXPECT_EQ(file.index().documents(), 3);
  EXPECT_EQ(file.index().sequences(), 5);  // 2 + 2 + 1, 0, 2.
  EXPECT_EQ(file.index().document_begin(1), 3);
  EXPECT_EQ(file.index().document_begin(2), 4);
  EXPECT_EQ(file.size(), 7);
}

TEST(TokenFile, LeavesNothingWithoutFinish) {
  {
    TokenFileWriter writer(temp("cancelled"), TokenType::kU8);
  }
  EXPECT_FALSE(std::filesystem::exists(temp("cancelled.bin")));
  EXPECT_FALSE(std::filesystem::exists(temp("cancelled.bin.tmp")));
}

TEST(TokenFile, MissingEmptyAndCutFiles) {
  EXPECT_CONTAINS(open_error(temp("none")), "none.idx: cannot open: No such file");
  write_two_documents(temp("bad"), TokenType::kI32);
  const std::string idx = file_bytes(temp("bad.idx")), bin = file_bytes(temp("bad.bin"));
  put(temp("bad.bin"), bin.substr(1));
  EXPECT_CONTAINS(open_error(temp("bad")),
                  "bad.bin: cut off: 20 bytes expected (5 tokens of i32), the file has 19");
  put(temp("bad.bin"), "");
  EXPECT_CONTAINS(open_error(temp("bad")), "20 bytes expected");
  put(temp("bad.bin"), bin + "x");
  EXPECT_CONTAINS(open_error(temp("bad")), "too long: 20 bytes expected");
  std::filesystem::remove(temp("bad.bin"));
  EXPECT_CONTAINS(open_error(temp("bad")), "bad.bin: cannot open");
  put(temp("bad.bin"), bin);
  put(temp("bad.idx"), "");
  EXPECT_CONTAINS(open_error(temp("bad")), "bad.idx: empty file");
  for (std::size_t size = 1; size < idx.size(); ++size) {
    put(temp("bad.idx"), idx.substr(0, size));
    EXPECT_NE(open_error(temp("bad")), "accepted") << size;
  }
  put(temp("bad.idx"), idx + std::string(2, '\0'));  // Two modes: a multimodal file.
  EXPECT_EQ(open_error(temp("bad")), "accepted");
  put(temp("bad.idx"), idx + std::string(3, '\0'));
  EXPECT_CONTAINS(open_error(temp("bad")), "3 bytes too many");
}

TEST(TokenFile, OtherFormatsAndDamage) {
  write_two_documents(temp("damage"), TokenType::kI32);
  const std::string idx = file_bytes(temp("damage.idx"));
  const auto error_with = [&](std::size_t at, std::string_view bytes) {
    std::string changed = idx;
    changed.replace(at, bytes.size(), bytes);
    put(temp("damage.idx"), changed);
    return open_error(temp("damage"));
  };
  EXPECT_CONTAINS(error_with(0, std::string_view("TNTIDX\0\0", 8)), "TNTIDX");
  EXPECT_CONTAINS(error_with(0, "PK"), "not a Megatron index");
  EXPECT_CONTAINS(error_with(9, "\x02"), "version 2");
  EXPECT_CONTAINS(error_with(17, "\x06"), "floating point");
  EXPECT_CONTAINS(error_with(17, "\x09"), "type code 9 is unknown");
  EXPECT_CONTAINS(error_with(18, "\xff\xff\xff\xff\xff\xff\xff\xff"), "need too many bytes");
  EXPECT_CONTAINS(error_with(26, "\xff\xff\xff\xff\xff\xff\xff\x7f"), "need");
  EXPECT_CONTAINS(error_with(34, "\xff\xff\xff\xff"), "sequence 0 does not begin");
  EXPECT_CONTAINS(error_with(50, "\x08"), "sequence 1 does not begin");
  EXPECT_CONTAINS(error_with(58, "\x01"), "do not cover");
  EXPECT_CONTAINS(error_with(74, "\x01"), "do not cover");
  EXPECT_CONTAINS(error_with(66, "\x05"), "document 1 ends before");
}

}  // namespace
}  // namespace fourfold
