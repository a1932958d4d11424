#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/pretokenizer.h"
#include "formats/tokenizer_json.h"

namespace fourfold {

/// Trains a byte-level BPE tokenizer (Sennrich et al., ACL 2016; bytes as in GPT-2): words are
/// counted as text is added, then the most frequent pair of neighbours is merged again and again.
/// Of equally frequent pairs the one with the lower ids wins, so the result depends on the text
/// alone. Memory grows with the number of different words.
class BpeTrainer {
 public:
  explicit BpeTrainer(TokenizerPattern pattern = TokenizerPattern::kGpt2);

  /// Counts the words of a text; call it once per document or at cuts of find_text_cut().
  void add(std::string_view text);
  /// Adds what another trainer of the same pattern has counted.
  void add(const BpeTrainer& other);

  /// The tokenizer of `vocab_size` tokens: 256 bytes, merged tokens, and last "<|endoftext|>".
  /// Fewer where no pair is left that is there twice. `vocab_size` is at least kMinVocab.
  TokenizerModel train(std::int64_t vocab_size) const;

  static constexpr std::int64_t kMinVocab = 257;
  /// A pair that is there less often is not merged.
  static constexpr std::int64_t kMinFrequency = 2;

 private:
  struct TextHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  TokenizerPattern pattern_;
  Pretokenizer pretokenizer_;
  WordScanner scanner_;
  std::unordered_map<std::string, std::int64_t, TextHash, std::equal_to<>> words_;
};

}  // namespace fourfold
