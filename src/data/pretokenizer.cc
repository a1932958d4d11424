#include "data/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <string>

#include "base/check.h"
#include "base/error.h"

namespace fourfold {
namespace {

/// The pattern in PCRE2's words. White space is spelled out as Unicode's White_Space: PCRE2's own
/// \s also takes U+180E.
std::string pcre_pattern(TokenizerPattern pattern) {
#define FF_SPACE R"(\t-\r \x{85}\p{Z})"
  const std::string end = R"(|[)" FF_SPACE R"(]+(?![^)" FF_SPACE R"(])|[)" FF_SPACE R"(]+)";
  const std::string other = R"(| ?[^)" FF_SPACE R"(\p{L}\p{N}]+)";
  if (pattern == TokenizerPattern::kGpt2) {
    return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+)" + other + end;
  }
  const std::string numbers = pattern == TokenizerPattern::kLlama3 ? R"(|\p{N}{1,3})" : R"(|\p{N})";
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+)" + numbers + other +
         R"([\r\n]*|[)" FF_SPACE R"(]*[\r\n]+)" + end;
#undef FF_SPACE
}

pcre2_code* compile(const std::string& regex) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &offset, nullptr);
  FF_CHECK(code != nullptr, "PCRE2 error {} at {} of {}", error, offset, regex);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // Without it the pattern is interpreted.
  return code;
}

}  // namespace

struct Pretokenizer::Code {
  pcre2_code* words = nullptr;
  pcre2_code* word_character = nullptr;
  ~Code() {
    pcre2_code_free(words);
    pcre2_code_free(word_character);
  }
};

struct WordScanner::Match {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
  ~Match() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

Pretokenizer::Pretokenizer(TokenizerPattern pattern) : code_(std::make_unique<Code>()) {
  code_->words = compile(pcre_pattern(pattern));
  code_->word_character = compile(R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}])");
}

Pretokenizer::~Pretokenizer() = default;
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;

bool Pretokenizer::is_word_at(std::string_view text, std::size_t at) const {
  const Utf8Char c = decode_utf8(text, at);
  if (c.length == 0) return false;
  pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
  const int found =
      pcre2_match(code_->word_character, reinterpret_cast<PCRE2_SPTR>(text.data() + at),
                  static_cast<PCRE2_SIZE>(c.length), 0, 0, match, nullptr);
  pcre2_match_data_free(match);
  return found >= 0;
}

bool Pretokenizer::is_word_before(std::string_view text, std::size_t at) const {
  std::size_t begin = at;
  while (begin > 0 && at - begin < 4) {
    --begin;
    if ((static_cast<unsigned char>(text[begin]) & 0xC0) != 0x80) break;
  }
  return begin < at && is_word_at(text, begin);
}

WordScanner::WordScanner(const Pretokenizer& pretokenizer)
    : code_(pretokenizer.code_.get()), match_(std::make_unique<Match>()) {
  constexpr std::size_t kStackBytes = 32 << 10, kMaxStackBytes = 8 << 20;
  match_->data = pcre2_match_data_create(1, nullptr);
  match_->context = pcre2_match_context_create(nullptr);
  match_->stack = pcre2_jit_stack_create(kStackBytes, kMaxStackBytes, nullptr);
  pcre2_set_match_limit(match_->context, UINT32_MAX);  // The patterns backtrack linearly.
  pcre2_jit_stack_assign(match_->context, nullptr, match_->stack);
}

WordScanner::~WordScanner() = default;
WordScanner::WordScanner(WordScanner&&) noexcept = default;

std::size_t WordScanner::word_end(std::string_view text, std::size_t at) {
  const int found = pcre2_match(code_->words, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                text.size(), at, PCRE2_NO_UTF_CHECK, match_->data, match_->context);
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match_->data);
  FF_CHECK(found >= 0 && bounds[0] == at && bounds[1] > at, "PCRE2 error {} at byte {} of {}",
           found, at, text.size());
  return bounds[1];
}

}  // namespace fourfold
