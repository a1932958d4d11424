#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "data/pretokenizer.h"
#include "formats/tokenizer_json.h"

namespace fourfold {

/// A byte-level BPE tokenizer: any bytes become tokens and come back unchanged. Encodes as Hugging
/// Face's tokenizers does with add_special_tokens=False. Immutable, so threads may share it; each
/// that encodes much has a TokenEncoder of its own.
class Tokenizer {
 public:
  explicit Tokenizer(TokenizerModel model);
  static Result<Tokenizer> open(const std::string& path);

  /// Throws Error where the tokenizer asks for NFC and the text may not be in it.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// The bytes of the tokens, added ones as they are written. A token beyond the vocabulary throws
  /// Error. Bytes of a character cut in two are left as they are.
  std::string decode(std::span<const std::int32_t> tokens) const;
  std::string decode(std::span<const std::int64_t> tokens) const;

  /// Ids are below this.
  std::int64_t vocab_size() const { return model_.vocab_size(); }
  std::optional<std::int32_t> end_of_text() const { return model_.end_of_text(); }
  const std::string& fingerprint() const { return fingerprint_; }
  const TokenizerModel& model() const { return model_; }

  /// The last place at or before `limit` where the text can be cut so that both parts encode as the
  /// whole does; 0 where there is none. Needs at least one byte after the cut.
  std::size_t find_cut(std::string_view text, std::size_t limit) const;

 private:
  friend class TokenEncoder;

  /// Where an added token stands in the text; none from `from` on: begin is the text's size.
  struct Found {
    std::size_t begin;
    std::size_t end;
    const AddedToken* token;
  };
  Found find_added(std::string_view text, std::size_t from, bool normalized) const;
  bool straddles_added(std::string_view text, std::size_t cut) const;

  struct MergeRule {
    std::int32_t rank;
    std::int32_t result;
  };
  struct PairHash {
    std::size_t operator()(std::uint64_t pair) const {
      return static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15u) >> 20);
    }
  };

  TokenizerModel model_;
  std::string fingerprint_;
  Pretokenizer pretokenizer_;
  std::int32_t byte_ids_[256] = {};
  std::unordered_map<std::uint64_t, MergeRule, PairHash> rules_;  ///< By left << 32 | right.
  std::unordered_map<std::string, std::int32_t> whole_;           ///< Where merges are ignored.
  std::vector<std::vector<std::size_t>> added_by_byte_;           ///< Longest first.
};

/// Encodes for one thread, with a cache of words. The tokenizer must outlive it.
class TokenEncoder {
 public:
  explicit TokenEncoder(const Tokenizer& tokenizer);

  /// Appends the tokens of the text. Throws as Tokenizer::encode.
  void encode(std::string_view text, std::vector<std::int32_t>& out);

 private:
  void encode_part(std::string_view text, bool normalized, std::vector<std::int32_t>& out);
  void encode_words(std::string_view text, std::vector<std::int32_t>& out);
  void encode_word(std::string_view word, std::vector<std::int32_t>& out);
  void merge(std::string_view word, std::vector<std::int32_t>& out);

  /// Words waiting to be merged: a linked list over the bytes.
  struct Symbol {
    std::int32_t id;  ///< -1: merged into the one before.
    std::int32_t previous;
    std::int32_t next;
  };
  struct Candidate {
    std::int32_t rank;
    std::int32_t at;
    std::int32_t left;
    std::int32_t right;
  };
  void push_candidate(std::int32_t at);
  void merge_at(std::int32_t at, std::int32_t result);

  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  const Tokenizer& tokenizer_;
  WordScanner scanner_;
  std::unordered_map<std::string, std::vector<std::int32_t>, TextHash, std::equal_to<>> cache_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace fourfold
