#include "formats/token_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace fourfold {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::string_view kOldMagic("TNTIDX\0\0", 8);
constexpr std::uint64_t kVersion = 1;
constexpr std::size_t kVersionAt = 9, kTypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26;
constexpr std::size_t kArraysAt = 34;

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

Error refused(const std::string& prefix, const std::string& suffix, const std::string& cause,
              std::string hint = "make the data again with 'fourfold data prepare'") {
  return Error(ErrorKind::kData, fmt::format("{}{}: {}", prefix, suffix, cause), std::move(hint));
}

std::optional<TokenType> token_type_from_code(std::uint8_t code) {
  for (const TokenType type : {TokenType::kU8, TokenType::kI8, TokenType::kI16, TokenType::kI32,
                               TokenType::kI64, TokenType::kU16}) {
    if (static_cast<std::uint8_t>(type) == code) return type;
  }
  return std::nullopt;
}

/// Calls f with a value of the type's C++ type.
template <class F>
void with_token_type(TokenType type, F f) {
  switch (type) {
    case TokenType::kU8:
      return f(std::uint8_t{});
    case TokenType::kI8:
      return f(std::int8_t{});
    case TokenType::kI16:
      return f(std::int16_t{});
    case TokenType::kI32:
      return f(std::int32_t{});
    case TokenType::kI64:
      return f(std::int64_t{});
    case TokenType::kU16:
      return f(std::uint16_t{});
  }
}

template <class Out>
void convert(TokenType type, const std::byte* from, std::int64_t count, Out* out) {
  with_token_type(type, [&](auto zero) {
    using T = decltype(zero);
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<Out>(load<T>(from + static_cast<std::size_t>(i) * sizeof(T)));
    }
  });
}

/// The cause for which magic, version and type are not ours; empty where they are.
std::string check_start(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with(kOldMagic)) {
    return "an index of fairseq's old format (magic TNTIDX), not of Megatron's (MMIDIDX)";
  }
  if (!text.starts_with(kMagic)) return "not a Megatron index: its first bytes are not MMIDIDX";
  if (bytes.size() < kArraysAt) return fmt::format("cut off: {} bytes of header", bytes.size());
  const auto version = load<std::uint64_t>(bytes.data() + kVersionAt);
  if (version != kVersion) return fmt::format("version {}; only {} is known", version, kVersion);
  const auto code = load<std::uint8_t>(bytes.data() + kTypeAt);
  if (!token_type_from_code(code)) {
    return fmt::format("type code {} {}", code,
                       code == 6 || code == 7 ? "means floating point, not tokens" : "is unknown");
  }
  return "";
}

/// Bytes of the arrays without modes; none where the counts overflow.
std::optional<std::uint64_t> arrays_bytes(std::uint64_t sequences, std::uint64_t ends) {
  std::uint64_t a = 0, b = 0, sum = 0;
  if (__builtin_mul_overflow(sequences, std::uint64_t{12}, &a)) return std::nullopt;
  if (__builtin_mul_overflow(ends, std::uint64_t{8}, &b)) return std::nullopt;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  if (__builtin_add_overflow(sum, std::uint64_t{kArraysAt}, &sum)) return std::nullopt;
  return sum;
}

}  // namespace

std::int64_t token_bytes(TokenType type) {
  std::int64_t bytes = 0;
  with_token_type(type, [&](auto zero) { bytes = sizeof zero; });
  return bytes;
}

std::string_view token_type_name(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return "u8";
    case TokenType::kI8:
      return "i8";
    case TokenType::kI16:
      return "i16";
    case TokenType::kI32:
      return "i32";
    case TokenType::kI64:
      return "i64";
    case TokenType::kU16:
      return "u16";
  }
  return "?";
}

TokenType token_type_for_vocab(std::int64_t vocab_size) {
  constexpr std::int64_t kMegatronsLimit = 65'500;
  return vocab_size < kMegatronsLimit ? TokenType::kU16 : TokenType::kI32;
}

Result<TokenIndex> TokenIndex::parse(std::span<const std::byte> bytes, std::uint64_t bin_bytes,
                                     const std::string& prefix) {
  if (bytes.empty()) return refused(prefix, ".idx", "empty file");
  const std::string cause = check_start(bytes);
  if (!cause.empty()) return refused(prefix, ".idx", cause);
  const auto sequences = load<std::uint64_t>(bytes.data() + kSequencesAt);
  const auto ends = load<std::uint64_t>(bytes.data() + kDocumentsAt);
  const auto needed = arrays_bytes(sequences, ends);
  if (!needed || *needed > bytes.size()) {
    return refused(
        prefix, ".idx",
        fmt::format("cut off: {} sequences and {} document ends need {} bytes, it has {}",
                    sequences, ends, needed ? std::to_string(*needed) : "too many", bytes.size()));
  }
  if (bytes.size() - *needed != 0 && bytes.size() - *needed != sequences) {
    return refused(prefix, ".idx", fmt::format("{} bytes too many", bytes.size() - *needed));
  }
  TokenIndex index;
  index.type_ = *token_type_from_code(load<std::uint8_t>(bytes.data() + kTypeAt));
  index.sequences_ = static_cast<std::int64_t>(sequences);
  index.documents_ = static_cast<std::int64_t>(ends) - 1;
  index.lengths_ = bytes.data() + kArraysAt;
  index.offsets_ = index.lengths_ + 4 * sequences;
  index.ends_ = index.offsets_ + 8 * sequences;
  const std::int64_t size = token_bytes(index.type_);
  std::int64_t offset = 0;
  for (std::int64_t s = 0; s < index.sequences_; ++s) {
    const std::int64_t length = index.sequence_length(s);
    if (length < 0 || load<std::int64_t>(index.offsets_ + 8 * s) != offset ||
        __builtin_add_overflow(offset, length * size, &offset)) {
      return refused(prefix, ".idx",
                     fmt::format("sequence {} does not begin where the one before ends", s));
    }
  }
  index.tokens_ = offset / size;
  if (ends == 0 || index.document_begin(0) != 0 ||
      index.document_begin(index.documents_) != index.sequences_) {
    return refused(prefix, ".idx", "its documents do not cover its sequences");
  }
  for (std::int64_t d = 0; d < index.documents_; ++d) {
    if (index.document_begin(d) > index.document_begin(d + 1)) {
      return refused(prefix, ".idx", fmt::format("document {} ends before it begins", d));
    }
  }
  if (bin_bytes != static_cast<std::uint64_t>(offset)) {
    return refused(
        prefix, ".bin",
        fmt::format("{}: {} bytes expected ({} tokens of {}), the file has {}",
                    bin_bytes < static_cast<std::uint64_t>(offset) ? "cut off" : "too long", offset,
                    index.tokens_, token_type_name(index.type_), bin_bytes),
        ".bin and .idx must come from the same run of 'fourfold data prepare'; make them again");
  }
  return index;
}

std::int64_t TokenIndex::sequence_length(std::int64_t sequence) const {
  return load<std::int32_t>(lengths_ + 4 * sequence);
}

std::int64_t TokenIndex::sequence_begin(std::int64_t sequence) const {
  return load<std::int64_t>(offsets_ + 8 * sequence) / token_bytes(type_);
}

std::int64_t TokenIndex::document_begin(std::int64_t document) const {
  return load<std::int64_t>(ends_ + 8 * document);
}

Result<TokenFile> TokenFile::open(const std::string& prefix) {
  TokenFile result;
  result.prefix_ = prefix;
  auto idx = MappedFile::open(prefix + ".idx");
  auto bin = MappedFile::open(prefix + ".bin");
  for (const auto* file : {&idx, &bin}) {
    if (!file->ok()) {
      return Error(ErrorKind::kData, file->error().what(),
                   "a data set is the prefix of a .bin and an .idx file, as 'fourfold data "
                   "prepare' writes them");
    }
  }
  result.idx_ = std::move(idx).value();
  result.bin_ = std::move(bin).value();
  auto index = TokenIndex::parse(result.idx_.bytes(), result.bin_.bytes().size(), prefix);
  if (!index) return index.error();
  if (index.value().tokens() == 0) return refused(prefix, ".bin", "holds no tokens");
  result.index_ = index.value();
  return result;
}

void TokenFile::read(std::int64_t begin, std::int64_t count, std::int64_t* out) const {
  FF_CHECK(begin >= 0 && count >= 0 && begin <= size() - count, "tokens [{}, +{}) of {}", begin,
           count, size());
  convert(index_.type(), bin_.bytes().data() + begin * token_bytes(index_.type()), count, out);
}

void TokenFile::read(std::int64_t begin, std::int64_t count, std::int32_t* out) const {
  FF_CHECK(begin >= 0 && count >= 0 && begin <= size() - count, "tokens [{}, +{}) of {}", begin,
           count, size());
  convert(index_.type(), bin_.bytes().data() + begin * token_bytes(index_.type()), count, out);
}

TokenFileWriter::TokenFileWriter(const std::string& prefix, TokenType type,
                                 std::int64_t max_sequence)
    : prefix_(prefix),
      type_(type),
      max_sequence_(max_sequence),
      bin_(prefix + ".bin"),
      idx_(prefix + ".idx") {
  FF_CHECK(max_sequence >= 1 && max_sequence <= kMaxSequence, "max_sequence {}", max_sequence);
  const char zeros[kArraysAt] = {};  // Filled in by finish().
  idx_.write(zeros, sizeof zeros);
}

void TokenFileWriter::append(std::span<const std::int32_t> tokens) {
  while (!tokens.empty()) {
    if (sequence_tokens_ == max_sequence_) end_sequence();
    const auto count = std::min<std::int64_t>(static_cast<std::int64_t>(tokens.size()),
                                              max_sequence_ - sequence_tokens_);
    const auto part = tokens.first(static_cast<std::size_t>(count));
    scratch_.resize(part.size() * static_cast<std::size_t>(token_bytes(type_)));
    with_token_type(type_, [&](auto zero) {
      using T = decltype(zero);
      std::byte* to = scratch_.data();
      for (const std::int32_t token : part) {
        const T value = static_cast<T>(token);
        if (static_cast<std::int64_t>(value) != token) {
          throw Error(ErrorKind::kData,
                      fmt::format("{}: token {} does not fit {}", bin_.path(), token,
                                  token_type_name(type_)),
                      "the tokenizer gives larger tokens than its vocabulary says; make it anew");
        }
        std::memcpy(to, &value, sizeof value);
        to += sizeof value;
      }
    });
    bin_.write(scratch_.data(), scratch_.size());
    tokens_ += count;
    sequence_tokens_ += count;
    tokens = tokens.subspan(part.size());
  }
}

void TokenFileWriter::end_sequence() {
  if (document_has_sequence_) continued_.push_back(sequences_);
  const auto length = static_cast<std::int32_t>(sequence_tokens_);
  idx_.write(&length, sizeof length);
  ++sequences_;
  sequence_tokens_ = 0;
  document_has_sequence_ = true;
}

void TokenFileWriter::end_document() {
  if (sequence_tokens_ > 0 || !document_has_sequence_) end_sequence();
  document_has_sequence_ = false;
  ++documents_;
}

void TokenFileWriter::write_offsets() {
  constexpr std::int64_t kChunk = 1 << 16;
  std::vector<std::int32_t> lengths(kChunk);
  std::int64_t offset = 0;
  for (std::int64_t s = 0; s < sequences_; s += kChunk) {
    const std::int64_t count = std::min(kChunk, sequences_ - s);
    idx_.read_at(kArraysAt + static_cast<std::uint64_t>(s) * 4, lengths.data(),
                 static_cast<std::size_t>(count) * 4);
    for (std::int64_t i = 0; i < count; ++i) {
      idx_.write(&offset, sizeof offset);
      offset += lengths[static_cast<std::size_t>(i)] * token_bytes(type_);
    }
  }
}

void TokenFileWriter::write_documents() {
  auto next_continued = continued_.begin();
  for (std::int64_t s = 0; s < sequences_; ++s) {
    if (next_continued != continued_.end() && *next_continued == s) {
      ++next_continued;
    } else {
      idx_.write(&s, sizeof s);
    }
  }
  idx_.write(&sequences_, sizeof sequences_);
}

void TokenFileWriter::finish() {
  if (sequence_tokens_ > 0 || document_has_sequence_) end_document();
  write_offsets();
  write_documents();
  std::byte header[kArraysAt];
  std::memcpy(header, kMagic.data(), kMagic.size());
  const std::int64_t ends = documents_ + 1;
  std::memcpy(header + kVersionAt, &kVersion, 8);
  std::memcpy(header + kTypeAt, &type_, 1);
  std::memcpy(header + kSequencesAt, &sequences_, 8);
  std::memcpy(header + kDocumentsAt, &ends, 8);
  idx_.write_at(0, header, sizeof header);
  idx_.sync();
  bin_.sync();
  // Without its index an older pair is no data set, so a crash between the renames leaves none
  // rather than a mixed one.
  if (::unlink((prefix_ + ".idx").c_str()) != 0 && errno != ENOENT) {
    throw file_error(prefix_ + ".idx", "cannot replace", errno);
  }
  bin_.commit();
  idx_.commit();
}

}  // namespace fourfold
