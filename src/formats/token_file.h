#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/file_io.h"

namespace fourfold {

// Megatron's indexed data set: PREFIX.bin holds the tokens one after another, PREFIX.idx says what
// type they have and where sequences and documents end. Little-endian, nothing is aligned:
//   "MMIDIDX\0\0", u64 version 1, u8 type, u64 S sequences, u64 D = documents + 1,
//   i32[S] lengths in tokens, i64[S] byte offsets in .bin, i64[D] document ends in sequences,
//   and, in multimodal files only, i8[S] modes.

/// Types of a token in .bin; the values are the format's codes.
enum class TokenType : std::uint8_t { kU8 = 1, kI8 = 2, kI16 = 3, kI32 = 4, kI64 = 5, kU16 = 8 };

std::int64_t token_bytes(TokenType type);
std::string_view token_type_name(TokenType type);

/// u16 for vocabularies below 65,500 tokens, else i32: what Megatron's own writer picks.
TokenType token_type_for_vocab(std::int64_t vocab_size);

/// What an .idx file says. The arrays stay in the bytes it was read from.
class TokenIndex {
 public:
  /// Reads and checks the bytes of an .idx file whose .bin has `bin_bytes` bytes. `prefix` stands
  /// in messages. Errors: another magic, version or type, counts that overflow or disagree with the
  /// file's size, sequences that are not one after another, documents that go back, and a .bin that
  /// is shorter or longer than the index says. `bytes` must outlive the result. O(S + D).
  static Result<TokenIndex> parse(std::span<const std::byte> bytes, std::uint64_t bin_bytes,
                                  const std::string& prefix);

  TokenType type() const { return type_; }
  std::int64_t tokens() const { return tokens_; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t documents() const { return documents_; }
  std::int64_t sequence_length(std::int64_t sequence) const;
  /// First token of a sequence, in tokens from the start.
  std::int64_t sequence_begin(std::int64_t sequence) const;
  /// First sequence of a document; documents() gives the number of sequences.
  std::int64_t document_begin(std::int64_t document) const;

 private:
  const std::byte* lengths_ = nullptr;
  const std::byte* offsets_ = nullptr;
  const std::byte* ends_ = nullptr;
  TokenType type_ = TokenType::kU16;
  std::int64_t tokens_ = 0;
  std::int64_t sequences_ = 0;
  std::int64_t documents_ = 0;
};

/// A data set by its prefix, memory-mapped: opening reads the index only. Safe to share between
/// threads.
class TokenFile {
 public:
  static Result<TokenFile> open(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  const TokenIndex& index() const { return index_; }
  /// Tokens of all documents.
  std::int64_t size() const { return index_.tokens(); }

  /// Copies tokens [begin, begin + count) of the flat stream of all documents.
  void read(std::int64_t begin, std::int64_t count, std::int64_t* out) const;
  void read(std::int64_t begin, std::int64_t count, std::int32_t* out) const;

 private:
  std::string prefix_;
  MappedFile idx_;
  MappedFile bin_;
  TokenIndex index_;
};

/// Writes a data set in a stream: memory does not grow with it. PREFIX.bin and PREFIX.idx appear
/// when finish() has synced both; a pair of that name is replaced. Failures throw Error.
class TokenFileWriter {
 public:
  /// Longer documents are cut into sequences of this many tokens (the format's lengths are i32).
  static constexpr std::int64_t kMaxSequence = std::numeric_limits<std::int32_t>::max();

  TokenFileWriter(const std::string& prefix, TokenType type,
                  std::int64_t max_sequence = kMaxSequence);

  /// Adds tokens to the current document. A token that the type cannot hold throws Error.
  void append(std::span<const std::int32_t> tokens);
  /// Ends the current document, which may be empty.
  void end_document();
  void finish();

  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return documents_; }

 private:
  void end_sequence();
  void write_offsets();
  void write_documents();

  std::string prefix_;
  TokenType type_;
  std::int64_t max_sequence_;
  AtomicFile bin_;
  AtomicFile idx_;
  std::vector<std::byte> scratch_;
  std::int64_t tokens_ = 0;
  std::int64_t documents_ = 0;
  std::int64_t sequences_ = 0;
  std::int64_t sequence_tokens_ = 0;
  bool document_has_sequence_ = false;
  /// Sequences that go on with the document of the one before: rare, so kept in memory.
  std::vector<std::int64_t> continued_;
};

}  // namespace fourfold
