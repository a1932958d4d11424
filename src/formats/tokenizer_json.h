#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace fourfold {

/// How text is cut into words before merging; the format states it as a regular expression.
enum class TokenizerPattern { kGpt2, kLlama3, kQwen2 };

/// The regular expression of a pattern, as tokenizer.json holds it.
std::string_view tokenizer_pattern_regex(TokenizerPattern pattern);

/// A token that is found in the text itself, before it is cut into words.
struct AddedToken {
  std::int32_t id = 0;
  std::string content{};
  bool single_word = false;  ///< Only between characters that are no letters, digits or "_".
  bool lstrip = false;       ///< Swallows white space before it.
  bool rstrip = false;       ///< Swallows white space after it.
  bool normalized = false;   ///< Matched after the normalizer.
  bool special = true;
};

struct TokenizerMerge {
  std::int32_t left = 0;
  std::int32_t right = 0;
  std::int32_t result = 0;
};

/// A byte-level BPE tokenizer as a Hugging Face tokenizer.json holds it. Tokens are the bytes they
/// stand for, not the format's printable alphabet.
struct TokenizerModel {
  TokenizerPattern pattern = TokenizerPattern::kGpt2;
  bool nfc = false;                 ///< The normalizer is Unicode's NFC (Qwen); else there is none.
  bool ignore_merges = false;       ///< A word that is a token is taken whole, without merging.
  std::vector<std::string> tokens;  ///< By id; an id without a token is empty.
  std::vector<TokenizerMerge> merges;  ///< By rank: the first merges first.
  std::vector<AddedToken> added;

  /// Ids are below this: the least vocabulary a model must have.
  std::int64_t vocab_size() const { return static_cast<std::int64_t>(tokens.size()); }
  /// "<|endoftext|>" or another family's name of it; none where there is none.
  std::optional<std::int32_t> end_of_text() const;
  /// Eight hex digits that differ where tokens, merges, pattern or added tokens differ.
  std::string fingerprint() const;
};

/// Reads the text of a tokenizer.json; `file` stands in messages. Errors name what is missing,
/// inconsistent or not supported: other models than BPE, tokenizers that are not byte-level, other
/// patterns, normalizers and prefixes. Post-processors, truncation and padding are not applied:
/// fourfold encodes as `encode(text, add_special_tokens=False)` does.
Result<TokenizerModel> parse_tokenizer_json(std::string_view text, const std::string& file);
Result<TokenizerModel> read_tokenizer_json(const std::string& path);

std::string format_tokenizer_json(const TokenizerModel& model);
/// Atomic. Throws Error.
void write_tokenizer_json(const std::string& path, const TokenizerModel& model);

/// Bytes in the format's printable alphabet, as UTF-8: printable bytes stand for themselves, the 68
/// others in ascending order are U+0100 to U+0143.
std::string bytes_to_alphabet(std::string_view bytes);
/// The reverse; none where a character is outside the alphabet.
std::optional<std::string> alphabet_to_bytes(std::string_view text);
/// The 256 bytes in the order of the alphabet's code points, which is that of GPT-2's first ids.
std::vector<std::uint8_t> alphabet_order();

}  // namespace fourfold
