#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "formats/tokenizer_json.h"
#include "formats/utf8.h"

namespace fourfold {

/// Cuts text into words by a pattern of tokenizer_json.h, by PCRE2. Immutable; each thread scans
/// through a WordScanner of its own.
class Pretokenizer {
 public:
  explicit Pretokenizer(TokenizerPattern pattern);
  ~Pretokenizer();
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;

  /// Whether a letter, mark, digit or joining mark (the class \w) stands before or at the byte.
  bool is_word_before(std::string_view text, std::size_t at) const;
  bool is_word_at(std::string_view text, std::size_t at) const;

 private:
  friend class WordScanner;
  struct Code;
  std::unique_ptr<Code> code_;
};

class WordScanner {
 public:
  /// The pretokenizer, or what it was moved to, must outlive the scanner.
  explicit WordScanner(const Pretokenizer& pretokenizer);
  ~WordScanner();
  WordScanner(WordScanner&&) noexcept;

  /// Calls f(word) for the words of the text in order; they are parts of it and cover it. A run of
  /// bytes that are not UTF-8 is a word.
  template <class F>
  void for_each_word(std::string_view text, F f) {
    while (!text.empty()) {
      const std::string_view valid = text.substr(0, utf8_prefix(text));
      for (std::size_t at = 0; at < valid.size();) {
        const std::size_t end = word_end(valid, at);
        f(valid.substr(at, end - at));
        at = end;
      }
      text.remove_prefix(valid.size());
      std::size_t bad = 0;
      while (bad < text.size() && decode_utf8(text, bad).length == 0) ++bad;
      if (bad > 0) f(text.substr(0, bad));
      text.remove_prefix(bad);
    }
  }

 private:
  /// The end of the word of valid UTF-8 that begins at byte `at`.
  std::size_t word_end(std::string_view text, std::size_t at);

  const Pretokenizer::Code* code_;
  struct Match;
  std::unique_ptr<Match> match_;
};

}  // namespace fourfold
