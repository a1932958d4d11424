#include "data/tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "data/text_cut.h"
#include "data/unicode.h"

namespace fourfold {
namespace {

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

std::size_t skip_white_space(std::string_view text, std::size_t at) {
  for (;;) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.length == 0 || !is_white_space(c.code)) return at;
    at += static_cast<std::size_t>(c.length);
  }
}

std::size_t skip_white_space_back(std::string_view text, std::size_t at, std::size_t least) {
  while (at > least) {
    std::size_t begin = at - 1;
    while (begin > least && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    const Utf8Char c = decode_utf8(text, begin);
    if (begin + static_cast<std::size_t>(c.length) != at || !is_white_space(c.code)) break;
    at = begin;
  }
  return at;
}

template <class Token>
std::string decode_tokens(const TokenizerModel& model, std::span<const Token> tokens) {
  std::string out;
  for (const Token token : tokens) {
    if (token < 0 || token >= model.vocab_size()) {
      throw Error(
          ErrorKind::kData,
          fmt::format("token {} is beyond the tokenizer's {} tokens", token, model.vocab_size()),
          "the tokenizer does not match the model or the data");
    }
    out += model.tokens[static_cast<std::size_t>(token)];
  }
  return out;
}

}  // namespace

Tokenizer::Tokenizer(TokenizerModel model)
    : model_(std::move(model)),
      fingerprint_(model_.fingerprint()),
      pretokenizer_(model_.pattern),
      added_by_byte_(256) {
  for (std::size_t id = 0; id < model_.tokens.size(); ++id) {
    const std::string& token = model_.tokens[id];
    if (token.size() == 1) {
      byte_ids_[static_cast<unsigned char>(token[0])] = static_cast<std::int32_t>(id);
    }
    if (model_.ignore_merges && !token.empty()) {
      whole_.emplace(token, static_cast<std::int32_t>(id));
    }
  }
  rules_.reserve(model_.merges.size());
  for (std::size_t rank = 0; rank < model_.merges.size(); ++rank) {
    const TokenizerMerge& merge = model_.merges[rank];
    rules_.insert_or_assign(pair_key(merge.left, merge.right),
                            MergeRule{static_cast<std::int32_t>(rank), merge.result});
  }
  for (std::size_t i = 0; i < model_.added.size(); ++i) {
    added_by_byte_[static_cast<unsigned char>(model_.added[i].content[0])].push_back(i);
  }
  for (auto& list : added_by_byte_) {
    std::ranges::stable_sort(list, std::ranges::greater(),
                             [&](std::size_t i) { return model_.added[i].content.size(); });
  }
}

Result<Tokenizer> Tokenizer::open(const std::string& path) {
  auto model = read_tokenizer_json(path);
  if (!model) return model.error();
  return Tokenizer(std::move(model).value());
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> out;
  TokenEncoder(*this).encode(text, out);
  return out;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  return decode_tokens(model_, tokens);
}

std::string Tokenizer::decode(std::span<const std::int64_t> tokens) const {
  return decode_tokens(model_, tokens);
}

Tokenizer::Found Tokenizer::find_added(std::string_view text, std::size_t from,
                                       bool normalized) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    for (const std::size_t i : added_by_byte_[static_cast<unsigned char>(text[at])]) {
      const AddedToken& token = model_.added[i];
      if (token.normalized != normalized || !text.substr(at).starts_with(token.content)) continue;
      std::size_t end = at + token.content.size();
      if (token.single_word &&
          (pretokenizer_.is_word_before(text, at) || pretokenizer_.is_word_at(text, end))) {
        at = end - 1;  // As the reference does: what is refused is stepped over.
        break;
      }
      if (token.rstrip) end = skip_white_space(text, end);
      return {token.lstrip ? skip_white_space_back(text, at, from) : at, end, &token};
    }
  }
  return {text.size(), text.size(), nullptr};
}

bool Tokenizer::straddles_added(std::string_view text, std::size_t cut) const {
  for (const AddedToken& token : model_.added) {
    const bool plain = token.content.find_first_of(" \n") == std::string::npos;
    if (plain && !token.lstrip && !token.rstrip) continue;
    const std::size_t reach = token.content.size() + 1;
    const std::size_t begin = cut - std::min(cut, reach);
    if (text.substr(begin, 2 * reach).find(token.content) != std::string_view::npos) return true;
  }
  return false;
}

std::size_t Tokenizer::find_cut(std::string_view text, std::size_t limit) const {
  std::size_t cut = find_text_cut(text, limit);
  while (cut > 0 && straddles_added(text, cut)) cut = find_text_cut(text, cut - 1);
  return cut;
}

TokenEncoder::TokenEncoder(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), scanner_(tokenizer.pretokenizer_) {}

void TokenEncoder::encode(std::string_view text, std::vector<std::int32_t>& out) {
  encode_part(text, /*normalized=*/false, out);
}

/// Added tokens that ask for the raw text come first, then, in what lies between, those that ask
/// for normalised text, then words.
void TokenEncoder::encode_part(std::string_view text, bool normalized,
                               std::vector<std::int32_t>& out) {
  const auto between = [&](std::string_view part) {
    if (part.empty()) return;
    if (normalized) {
      encode_words(part, out);
      return;
    }
    if (tokenizer_.model_.nfc && find_not_surely_nfc(part) != part.size()) {
      throw Error(ErrorKind::kData,
                  fmt::format("text may not be in Unicode's Normalization Form C near '{}', which "
                              "this tokenizer asks for",
                              to_valid_utf8(part.substr(find_not_surely_nfc(part), 16))),
                  "normalise the text to NFC first (ICU's uconv -x any-nfc does it)");
    }
    encode_part(part, /*normalized=*/true, out);
  };
  std::size_t at = 0;
  while (at < text.size()) {
    const auto found = tokenizer_.find_added(text, at, normalized);
    between(text.substr(at, found.begin - at));
    if (found.token != nullptr) out.push_back(found.token->id);
    at = found.end;
  }
}

void TokenEncoder::encode_words(std::string_view text, std::vector<std::int32_t>& out) {
  scanner_.for_each_word(text, [&](std::string_view word) { encode_word(word, out); });
}

void TokenEncoder::encode_word(std::string_view word, std::vector<std::int32_t>& out) {
  constexpr std::size_t kMaxCachedWords = 1 << 17, kMaxCachedBytes = 64;
  if (word.size() == 1) {
    out.push_back(tokenizer_.byte_ids_[static_cast<unsigned char>(word[0])]);
    return;
  }
  if (word.size() > kMaxCachedBytes) {
    merge(word, out);
    return;
  }
  if (const auto it = cache_.find(word); it != cache_.end()) {
    out.insert(out.end(), it->second.begin(), it->second.end());
    return;
  }
  const std::size_t before = out.size();
  merge(word, out);
  if (cache_.size() >= kMaxCachedWords) cache_.clear();
  cache_.emplace(word, std::vector<std::int32_t>(out.begin() + static_cast<std::ptrdiff_t>(before),
                                                 out.end()));
}

void TokenEncoder::push_candidate(std::int32_t at) {
  const Symbol& left = symbols_[static_cast<std::size_t>(at)];
  if (left.next < 0) return;
  const std::int32_t right = symbols_[static_cast<std::size_t>(left.next)].id;
  const auto it = tokenizer_.rules_.find(pair_key(left.id, right));
  if (it == tokenizer_.rules_.end()) return;
  heap_.push_back({it->second.rank, at, left.id, right});
  std::ranges::push_heap(heap_, [](const Candidate& a, const Candidate& b) {
    return std::tie(a.rank, a.at) > std::tie(b.rank, b.at);
  });
}

void TokenEncoder::merge_at(std::int32_t at, std::int32_t result) {
  Symbol& left = symbols_[static_cast<std::size_t>(at)];
  Symbol& right = symbols_[static_cast<std::size_t>(left.next)];
  left.id = result;
  left.next = right.next;
  right.id = -1;
  if (left.next >= 0) symbols_[static_cast<std::size_t>(left.next)].previous = at;
  if (left.previous >= 0) push_candidate(left.previous);
  push_candidate(at);
}

/// Applies the lowest rank first, the leftmost of equals, in O(n log n). A candidate whose two
/// sides have changed since it was pushed is stale.
void TokenEncoder::merge(std::string_view word, std::vector<std::int32_t>& out) {
  if (tokenizer_.model_.ignore_merges) {
    if (const auto it = tokenizer_.whole_.find(std::string(word)); it != tokenizer_.whole_.end()) {
      out.push_back(it->second);
      return;
    }
  }
  const auto count = static_cast<std::int32_t>(word.size());
  symbols_.clear();
  heap_.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(word[static_cast<std::size_t>(i)]);
    symbols_.push_back({tokenizer_.byte_ids_[byte], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (std::int32_t i = 0; i + 1 < count; ++i) push_candidate(i);
  while (!heap_.empty()) {
    std::ranges::pop_heap(heap_, [](const Candidate& a, const Candidate& b) {
      return std::tie(a.rank, a.at) > std::tie(b.rank, b.at);
    });
    const Candidate best = heap_.back();
    heap_.pop_back();
    const Symbol& left = symbols_[static_cast<std::size_t>(best.at)];
    if (left.id != best.left || left.next < 0 ||
        symbols_[static_cast<std::size_t>(left.next)].id != best.right) {
      continue;
    }
    merge_at(best.at, tokenizer_.rules_.at(pair_key(best.left, best.right)).result);
  }
  for (std::int32_t i = 0; i >= 0; i = symbols_[static_cast<std::size_t>(i)].next) {
    out.push_back(symbols_[static_cast<std::size_t>(i)].id);
  }
}

}  // namespace fourfold
