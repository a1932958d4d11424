#include "formats/tokenizer_json.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "formats/utf8.h"

namespace fourfold {
namespace {

/// 256 bytes, " t", "he", " the", an end of text.
TokenizerModel small_model() {
  TokenizerModel model;
  for (const std::uint8_t byte : alphabet_order()) {
    model.tokens.emplace_back(1, static_cast<char>(byte));
  }
  const auto id = [&](std::string_view token) {
    return static_cast<std::int32_t>(std::ranges::find(model.tokens, token) - model.tokens.begin());
  };
  for (const auto& [left, right] : {std::pair{" ", "t"}, {"h", "e"}, {" t", "he"}}) {
    model.tokens.push_back(std::string(left) + right);
    model.merges.push_back({id(left), id(right), id(std::string(left) + right)});
  }
  model.added.push_back({.id = 259, .content = "<|endoftext|>"});
  model.tokens.push_back("<|endoftext|>");
  return model;
}

std::string error_of(const nlohmann::json& json) {
  const auto model = parse_tokenizer_json(json.dump(), "t.json");
  if (model.ok()) return "accepted";
  EXPECT_EQ(model.error().kind(), ErrorKind::kData);
  return model.error().what();
}

nlohmann::json small_json() { return nlohmann::json::parse(format_tokenizer_json(small_model())); }

void expect_same(const TokenizerModel& a, const TokenizerModel& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  ASSERT_EQ(a.merges.size(), b.merges.size());
  for (std::size_t i = 0; i < a.merges.size(); ++i) {
    EXPECT_EQ(a.merges[i].left, b.merges[i].left);
    EXPECT_EQ(a.merges[i].right, b.merges[i].right);
    EXPECT_EQ(a.merges[i].result, b.merges[i].result);
  }
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
}

TEST(TokenizerJson, TheAlphabetIsGpt2s) {
  EXPECT_EQ(bytes_to_alphabet(" \n"), "\u0120\u010A");
  EXPECT_EQ(bytes_to_alphabet("a\xff"), "a\u00FF");
  EXPECT_EQ(bytes_to_alphabet(std::string_view("\0\xad", 2)), "\u0100\u0143");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(alphabet_to_bytes(bytes_to_alphabet(all)), all);
  EXPECT_EQ(alphabet_to_bytes(" "), std::nullopt);
  EXPECT_EQ(alphabet_to_bytes("\u0144"), std::nullopt);
  EXPECT_EQ(alphabet_order()[0], '!');
  EXPECT_EQ(alphabet_order()[220], ' ');  // GPT-2's id of the space.
  EXPECT_EQ(alphabet_order()[198], '\n');
}

TEST(TokenizerJson, ReadsBackWhatItWrote) {
  for (const auto pattern :
       {TokenizerPattern::kGpt2, TokenizerPattern::kLlama3, TokenizerPattern::kQwen2}) {
    TokenizerModel model = small_model();
    model.pattern = pattern;
    model.nfc = pattern == TokenizerPattern::kQwen2;
    model.ignore_merges = pattern == TokenizerPattern::kLlama3;
    model.added[0].rstrip = true;
    model.added[0].content = model.tokens.back() = "<|fin de texte \u00e9|>";
    model.added.push_back({.id = 260, .content = "<|endoftext|>"});
    model.tokens.push_back("<|endoftext|>");
    const auto read = parse_tokenizer_json(format_tokenizer_json(model), "t.json");
    ASSERT_TRUE(read.ok()) << read.error().what();
    expect_same(read.value(), model);
    EXPECT_EQ(read.value().pattern, pattern);
    EXPECT_EQ(read.value().nfc, model.nfc);
    EXPECT_EQ(read.value().ignore_merges, model.ignore_merges);
    EXPECT_TRUE(read.value().added[0].rstrip);
    EXPECT_EQ(read.value().end_of_text(), 260);
    EXPECT_EQ(read.value().vocab_size(), 261);
  }
}

TEST(TokenizerJson, TakesMergesAsPairs) {
  auto json = small_json();
  json["model"]["merges"] =
      nlohmann::json::parse(R"([["\u0120", "t"], ["h", "e"], ["\u0120t", "he"]])");
  const auto read = parse_tokenizer_json(json.dump(), "t.json");
  ASSERT_TRUE(read.ok()) << read.error().what();
  expect_same(read.value(), small_model());
}

TEST(TokenizerJson, AddedTokensMayStandInTheVocabulary) {
  auto json = small_json();
  json["model"]["vocab"]["<|endoftext|>"] = 259;
  EXPECT_EQ(error_of(json), "accepted");
  json["model"]["vocab"]["<|endoftext|>"] = 258;
  EXPECT_NE(error_of(json).find("id 258 belongs to two tokens"), std::string::npos);
}

TEST(TokenizerJson, FingerprintsDiffer) {
  TokenizerModel a = small_model(), b = small_model(), c = small_model();
  std::swap(b.merges[0], b.merges[1]);
  c.pattern = TokenizerPattern::kLlama3;
  EXPECT_NE(a.fingerprint(), b.fingerprint());
  EXPECT_NE(a.fingerprint(), c.fingerprint());
}

TEST(TokenizerJson, RefusesWhatItDoesNotKnow) {
  const struct {
    const char* path;
    nlohmann::json value;
    const char* cause;
  } kCases[] = {
      {"/model/type", "WordPiece", "model 'WordPiece' is not BPE"},
      {"/model/byte_fallback", true, "byte fallback"},
      {"/model/dropout", 0.1, "dropout"},
      {"/model/end_of_word_suffix", "</w>", "'end_of_word_suffix' is not supported"},
      {"/model/vocab/e", -1, "the id of token 'e'"},
      {"/model/vocab/e", 1e9, "the id of token 'e'"},
      {"/model/vocab/e", 1 << 24, "the id of token 'e'"},
      {"/model/vocab/e", 5, "belongs to two tokens"},
      {"/model/vocab/\u2581the", 300, "not in the byte alphabet"},
      {"/model/vocab", 3, "'model.vocab' is not an object"},
      {"/model/merges/0", "a", "merge 0 is not a pair"},
      {"/model/merges/0", "a b c", "merge 0 is not a pair"},
      {"/model/merges/1", "a b", "merge 1 ('a' and 'b')"},
      {"/model/merges", "x", "'model.merges' is not a list"},
      {"/normalizer", {{"type", "Lowercase"}}, "normalizer 'Lowercase'"},
      {"/pre_tokenizer", nullptr, "ByteLevel"},
      {"/pre_tokenizer/add_prefix_space", true, "space before the text"},
      {"/pre_tokenizer/use_regex", false, "by no pattern"},
      {"/decoder", {{"type", "WordPiece"}}, "decoder"},
      {"/added_tokens", 1, "'added_tokens' is not a list"},
      {"/added_tokens/0/id", "x", "the id of token '<|endoftext|>'"},
      {"/added_tokens/0/special", 1, "'special' is not true or false"},
      {"/model", nullptr, "is not BPE"},
  };
  for (const auto& c : kCases) {
    auto json = small_json();
    json[nlohmann::json::json_pointer(c.path)] = c.value;
    EXPECT_NE(error_of(json).find(c.cause), std::string::npos) << c.path << ": " << error_of(json);
  }
  auto json = small_json();
  json["model"]["vocab"].erase("e");
  EXPECT_NE(error_of(json).find("byte 101 is no token"), std::string::npos);
  EXPECT_FALSE(parse_tokenizer_json("{", "t.json").ok());
  EXPECT_FALSE(parse_tokenizer_json("[]", "t.json").ok());
  EXPECT_FALSE(read_tokenizer_json("/nonexistent").ok());
}

TEST(TokenizerJson, NamesAnUnknownPattern) {
  auto model = small_model();
  model.pattern = TokenizerPattern::kLlama3;
  auto json = nlohmann::json::parse(format_tokenizer_json(model));
  json["/pre_tokenizer/pretokenizers/0/pattern/Regex"_json_pointer] = "\\w+";
  EXPECT_NE(error_of(json).find("\\w+"), std::string::npos);
}

TEST(Utf8, AcceptsExactlyUtf8) {
  EXPECT_EQ(decode_utf8("\u00e9", 0).code, 0xE9u);
  EXPECT_EQ(decode_utf8("\U0001F642", 0).code, 0x1F642u);
  EXPECT_EQ(decode_utf8("\U0010FFFF", 0).length, 4);
  for (const char* bad :
       {"\x80", "\xC0\xAF", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xC3("}) {
    EXPECT_EQ(decode_utf8(bad, 0).length, 0) << bad;
  }
  EXPECT_EQ(utf8_prefix("ab\u00e9\xff"), 4u);
  EXPECT_EQ(to_valid_utf8("a\xff\xc3"), "a\uFFFD\uFFFD");
  for (const char32_t code : {0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string text;
    append_utf8(text, code);
    EXPECT_EQ(decode_utf8(text, 0).code, code);
    EXPECT_EQ(decode_utf8(text, 0).length, static_cast<int>(text.size()));
  }
}

}  // namespace
}  // namespace fourfold
