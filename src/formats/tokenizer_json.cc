#include "formats/tokenizer_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "base/crc32c.h"
#include "formats/file_io.h"
#include "formats/utf8.h"

namespace fourfold {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kMaxFileBytes = 256'000'000;
constexpr std::int64_t kMaxId = 1 << 24;  // Bounds what a hostile id makes us allocate.

constexpr std::string_view kEndOfTextNames[] = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                                "<eos>"};

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> to{};
  std::array<std::int16_t, 0x144> from{};  ///< -1: not in the alphabet.

  constexpr Alphabet() {
    from.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      to[byte] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
      from[to[byte]] = static_cast<std::int16_t>(byte);
    }
  }
};

constexpr Alphabet kAlphabet;

struct Refused {
  std::string cause;
};

[[noreturn]] void refuse(std::string cause) { throw Refused{std::move(cause)}; }

/// A member of an object; null where the object or the member is not there.
const Json& member(const Json& object, const char* name) {
  static const Json kNull;
  if (!object.is_object()) return kNull;
  const auto it = object.find(name);
  return it == object.end() ? kNull : *it;
}

std::string string_member(const Json& object, const char* name) {
  const Json& value = member(object, name);
  return value.is_string() ? value.get<std::string>() : "";
}

bool bool_member(const Json& object, const char* name, bool otherwise) {
  const Json& value = member(object, name);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) refuse(fmt::format("'{}' is not true or false", name));
  return value.get<bool>();
}

std::int32_t id_of(const Json& value, std::string_view token) {
  if (!value.is_number_integer() || value.get<std::int64_t>() < 0 ||
      value.get<std::int64_t>() >= kMaxId) {
    refuse(fmt::format("the id of token '{}' is not a number from 0 to {}", token.substr(0, 80),
                       kMaxId - 1));
  }
  return value.get<std::int32_t>();
}

void set_token(TokenizerModel& model, std::int32_t id, std::string bytes) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= model.tokens.size()) model.tokens.resize(index + 1);
  if (!model.tokens[index].empty() && model.tokens[index] != bytes) {
    refuse(fmt::format("id {} belongs to two tokens", id));
  }
  model.tokens[index] = std::move(bytes);
}

void read_added(const Json& root, TokenizerModel& model) {
  const Json& list = member(root, "added_tokens");
  if (list.is_null()) return;
  if (!list.is_array()) refuse("'added_tokens' is not a list");
  for (const Json& item : list) {
    AddedToken token;
    token.content = string_member(item, "content");
    if (token.content.empty()) refuse("an added token has no content");
    token.id = id_of(member(item, "id"), token.content);
    token.single_word = bool_member(item, "single_word", false);
    token.lstrip = bool_member(item, "lstrip", false);
    token.rstrip = bool_member(item, "rstrip", false);
    token.normalized = bool_member(item, "normalized", false);
    token.special = bool_member(item, "special", false);
    set_token(model, token.id, token.content);
    model.added.push_back(std::move(token));
  }
}

void read_vocab(const Json& vocab, TokenizerModel& model) {
  if (!vocab.is_object()) refuse("'model.vocab' is not an object");
  // An added token stands in the vocabulary as it is written, the others in the alphabet.
  std::unordered_set<std::string_view> added;
  for (const AddedToken& token : model.added) added.insert(token.content);
  for (const auto& [text, id] : vocab.items()) {
    auto bytes = added.contains(text) ? text : alphabet_to_bytes(text);
    if (!bytes) {
      refuse(fmt::format("token '{}' is not in the byte alphabet: not a byte-level tokenizer",
                         text.substr(0, 80)));
    }
    if (bytes->empty()) refuse("the vocabulary has an empty token");
    set_token(model, id_of(id, text), std::move(*bytes));
  }
}

/// The two sides of a merge: "a b" (the older form) or ["a", "b"].
std::pair<std::string, std::string> merge_sides(const Json& merge, std::size_t rank) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const auto space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  }
  refuse(fmt::format("merge {} is not a pair of tokens", rank));
}

void read_merges(const Json& merges, TokenizerModel& model) {
  if (!merges.is_array()) refuse("'model.merges' is not a list");
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (std::size_t id = 0; id < model.tokens.size(); ++id) {
    if (!model.tokens[id].empty()) ids.emplace(model.tokens[id], static_cast<std::int32_t>(id));
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (!ids.contains(std::string_view(&c, 1))) {
      refuse(fmt::format("byte {} is no token: not a byte-level tokenizer", byte));
    }
  }
  model.merges.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = merge_sides(merges[rank], rank);
    const auto a = alphabet_to_bytes(left), b = alphabet_to_bytes(right);
    if (!a || !b || !ids.contains(*a) || !ids.contains(*b) || !ids.contains(*a + *b)) {
      refuse(fmt::format("merge {} ('{}' and '{}') is not of tokens of the vocabulary", rank,
                         left.substr(0, 80), right.substr(0, 80)));
    }
    model.merges.push_back({ids.at(*a), ids.at(*b), ids.at(*a + *b)});
  }
}

void read_normalizer(const Json& normalizer, TokenizerModel& model) {
  if (normalizer.is_null()) return;
  const std::string type = string_member(normalizer, "type");
  if (type == "NFC") {
    model.nfc = true;
  } else if (type == "Sequence" && member(normalizer, "normalizers").is_array()) {
    const Json& parts = member(normalizer, "normalizers");
    if (parts.size() > 1) refuse("a normalizer of several steps is not supported");
    if (parts.size() == 1 && string_member(parts[0], "type") == "Sequence") {
      refuse("nested normalizers are not supported");
    }
    if (parts.size() == 1) read_normalizer(parts[0], model);
  } else {
    refuse(fmt::format("normalizer '{}' is not supported (none or NFC is)", type.substr(0, 80)));
  }
}

void check_byte_level(const Json& step, bool use_regex) {
  if (string_member(step, "type") != "ByteLevel") {
    refuse("the pre-tokenizer does not end with ByteLevel: not a byte-level tokenizer");
  }
  if (bool_member(step, "add_prefix_space", true)) {
    refuse("a pre-tokenizer that adds a space before the text is not supported");
  }
  if (bool_member(step, "use_regex", true) != use_regex) {
    refuse("the pre-tokenizer cuts the text by no pattern or by two; one is supported");
  }
}

void read_pre_tokenizer(const Json& pre, TokenizerModel& model) {
  if (string_member(pre, "type") != "Sequence") {
    check_byte_level(pre, /*use_regex=*/true);
    model.pattern = TokenizerPattern::kGpt2;
    return;
  }
  const Json& steps = member(pre, "pretokenizers");
  if (!steps.is_array() || steps.size() != 2) {
    refuse("a pre-tokenizer other than Split, then ByteLevel, is not supported");
  }
  const std::string regex = string_member(member(steps[0], "pattern"), "Regex");
  if (string_member(steps[0], "type") != "Split" ||
      string_member(steps[0], "behavior") != "Isolated" || bool_member(steps[0], "invert", false)) {
    refuse("a pre-tokenizer other than Split (Isolated), then ByteLevel, is not supported");
  }
  check_byte_level(steps[1], /*use_regex=*/false);
  for (const auto pattern :
       {TokenizerPattern::kGpt2, TokenizerPattern::kLlama3, TokenizerPattern::kQwen2}) {
    if (tokenizer_pattern_regex(pattern) == regex) {
      model.pattern = pattern;
      return;
    }
  }
  refuse("its pattern is none of GPT-2's, Llama 3's and Qwen's: " + regex.substr(0, 200));
}

void read_model(const Json& bpe, TokenizerModel& model) {
  const std::string type = string_member(bpe, "type");
  if (!bpe.is_object() || (type != "BPE" && !type.empty())) {
    refuse(fmt::format("model '{}' is not BPE", type.substr(0, 80)));
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!string_member(bpe, name).empty()) refuse(fmt::format("'{}' is not supported", name));
  }
  const Json& dropout = member(bpe, "dropout");
  if (!dropout.is_null() && dropout != 0.0) refuse("BPE dropout is not supported");
  if (bool_member(bpe, "byte_fallback", false)) {
    refuse("byte fallback: not a byte-level tokenizer");
  }
  model.ignore_merges = bool_member(bpe, "ignore_merges", false);
  read_vocab(member(bpe, "vocab"), model);
  read_merges(member(bpe, "merges"), model);
}

}  // namespace

std::string_view tokenizer_pattern_regex(TokenizerPattern pattern) {
  switch (pattern) {
    case TokenizerPattern::kGpt2:
      return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
    case TokenizerPattern::kLlama3:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
             R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
    case TokenizerPattern::kQwen2:
      return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
             R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  }
  return "";
}

std::optional<std::int32_t> TokenizerModel::end_of_text() const {
  for (const std::string_view name : kEndOfTextNames) {
    for (const AddedToken& token : added) {
      if (token.content == name) return token.id;
    }
  }
  return std::nullopt;
}

std::string TokenizerModel::fingerprint() const {
  std::uint32_t crc = 0;
  const auto add = [&crc](std::string_view text) {
    const auto size = static_cast<std::uint32_t>(text.size());
    crc = crc32c(&size, sizeof size, crc);
    crc = crc32c(text.data(), text.size(), crc);
  };
  for (const std::string& token : tokens) add(token);
  crc = crc32c(merges.data(), merges.size() * sizeof(TokenizerMerge), crc);
  for (const AddedToken& token : added) {
    add(fmt::format("{} {} {}{}{}{}{}", token.id, token.content, int{token.single_word},
                    int{token.lstrip}, int{token.rstrip}, int{token.normalized},
                    int{token.special}));
  }
  add(fmt::format("{} {} {}", static_cast<int>(pattern), nfc, ignore_merges));
  return fmt::format("{:08x}", crc);
}

Result<TokenizerModel> parse_tokenizer_json(std::string_view text, const std::string& file) {
  const Json root = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  try {
    if (root.is_discarded()) refuse("not valid JSON");
    if (!root.is_object()) refuse("not a JSON object");
    TokenizerModel model;
    read_added(root, model);
    read_normalizer(member(root, "normalizer"), model);
    read_pre_tokenizer(member(root, "pre_tokenizer"), model);
    read_model(member(root, "model"), model);
    const Json& decoder = member(root, "decoder");
    if (!decoder.is_null() && string_member(decoder, "type") != "ByteLevel") {
      refuse("its decoder is not ByteLevel");
    }
    return model;
  } catch (const Refused& refused) {
    return Error(ErrorKind::kData, fmt::format("{}: {}", file, refused.cause),
                 "a byte-level BPE tokenizer.json is needed, as GPT-2, Llama 3 and Qwen have; "
                 "'fourfold data tokenizer' trains one");
  }
}

Result<TokenizerModel> read_tokenizer_json(const std::string& path) {
  auto text = read_text_file(path, kMaxFileBytes);
  if (!text) return text.error();
  return parse_tokenizer_json(text.value(), path);
}

void write_tokenizer_json(const std::string& path, const TokenizerModel& model) {
  write_text_file(path, format_tokenizer_json(model));
}

std::string bytes_to_alphabet(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) append_utf8(out, kAlphabet.to[static_cast<unsigned char>(c)]);
  return out;
}

std::optional<std::string> alphabet_to_bytes(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.length == 0 || c.code >= kAlphabet.from.size() || kAlphabet.from[c.code] < 0) {
      return std::nullopt;
    }
    out += static_cast<char>(kAlphabet.from[c.code]);
    at += static_cast<std::size_t>(c.length);
  }
  return out;
}

std::vector<std::uint8_t> alphabet_order() {
  std::vector<std::uint8_t> order;
  for (const std::int16_t byte : kAlphabet.from) {
    if (byte >= 0) order.push_back(static_cast<std::uint8_t>(byte));
  }
  return order;
}

}  // namespace fourfold
