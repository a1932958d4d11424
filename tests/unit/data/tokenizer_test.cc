#include "data/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "data/bpe_trainer.h"
#include "data/pretokenizer.h"
#include "data/text_cut.h"
#include "data/unicode.h"

namespace fourfold {
namespace {

constexpr TokenizerPattern kPatterns[] = {TokenizerPattern::kGpt2, TokenizerPattern::kLlama3,
                                          TokenizerPattern::kQwen2};

std::vector<std::string> words(TokenizerPattern pattern, std::string_view text) {
  const Pretokenizer pretokenizer(pattern);
  std::vector<std::string> out;
  WordScanner(pretokenizer).for_each_word(text, [&](std::string_view w) { out.emplace_back(w); });
  return out;
}

using Words = std::vector<std::string>;

const char* const kProse =
    "In the beginning God created the heaven and the earth.\n"
    "And the earth was without form, and void; and darkness was upon the face of the deep.\n\n"
    "  And the Spirit of God moved upon the face of the waters. And God said, Let there be light: "
    "and there was light. I'll don't, we've 1234 times na\u00efve caf\u00e9 "
    "\u65e5\u672c\u8a9e \U0001F642\n";

Tokenizer trained(TokenizerPattern pattern, std::int64_t vocab = 320) {
  BpeTrainer trainer(pattern);
  trainer.add(kProse);
  return Tokenizer(trainer.train(vocab));
}

/// Pieces that make trouble: white space of every kind, cut characters, special tokens.
std::string random_text(std::mt19937& random) {
  static const std::string kPieces[] = {"the",        " and",
                                        " ",          "  ",
                                        "\n",         "\r\n",
                                        "\t",         "'s",
                                        "'S",         "'ll",
                                        "1234",       "\u00e9",
                                        "\u0663",     "\xff",
                                        "\xe2",       "\u3000",
                                        "\u180e",     "\u0085",
                                        "\u2028",     "earth",
                                        ".",          "!?",
                                        "_",          "\u65e5",
                                        "\U0001F642", "\xc2\xa0",
                                        "God",        "<|endoftext|>",
                                        "<|endof",    std::string(1, '\0')};
  std::string text;
  for (int i = static_cast<int>(random() % 40); i > 0; --i) {
    text += kPieces[random() % std::size(kPieces)];
  }
  return text;
}

TEST(Pretokenizer, CutsAsThePatternsSay) {
  EXPECT_EQ(words(TokenizerPattern::kGpt2, "Hello, world! 123"),
            (Words{"Hello", ",", " world", "!", " 123"}));
  EXPECT_EQ(words(TokenizerPattern::kGpt2, "  two  spaces\n\nnew"),
            (Words{" ", " two", " ", " spaces", "\n", "\n", "new"}));
  EXPECT_EQ(words(TokenizerPattern::kGpt2, "I'll don't"), (Words{"I", "'ll", " don", "'t"}));
  EXPECT_EQ(words(TokenizerPattern::kLlama3, "I'LL 12345.\n\nx"),
            (Words{"I", "'LL", " ", "123", "45", ".\n\n", "x"}));
  EXPECT_EQ(words(TokenizerPattern::kQwen2, "a 12\n b"), (Words{"a", " ", "1", "2", "\n", " b"}));
  EXPECT_EQ(words(TokenizerPattern::kGpt2, "\u0085\u180e"), (Words{"\u0085", "\u180e"}));
  EXPECT_EQ(words(TokenizerPattern::kGpt2, "a\xff\xfe b\xe2"),
            (Words{"a", "\xff\xfe", " b", "\xe2"}));
}

TEST(Pretokenizer, LongRunsAreLinear) {
  const std::string spaces(3'000'000, ' ');
  for (const auto pattern : kPatterns) {
    EXPECT_EQ(words(pattern, spaces + "x").size(), 2u);
    EXPECT_EQ(words(pattern, std::string(3'000'000, 'x')).size(), 1u);
  }
}

TEST(Tokenizer, DecodeUndoesEncode) {
  std::mt19937 random(7);
  for (const auto pattern : kPatterns) {
    const Tokenizer tokenizer = trained(pattern);
    TokenEncoder encoder(tokenizer);
    for (int i = 0; i < 3000; ++i) {
      const std::string text = random_text(random);
      std::vector<std::int32_t> tokens;
      encoder.encode(text, tokens);
      ASSERT_EQ(tokenizer.decode(std::span<const std::int32_t>(tokens)), text);
      ASSERT_EQ(tokens, tokenizer.encode(text));  // The cache changes nothing.
    }
    std::string bytes;
    for (int i = 0; i < 5000; ++i) bytes += static_cast<char>(random());
    EXPECT_EQ(tokenizer.decode(std::span<const std::int32_t>(tokenizer.encode(bytes))), bytes);
  }
}

/// The definition: the merge of lowest rank, leftmost, until none applies.
std::vector<std::int32_t> merge_plainly(const TokenizerModel& model, std::string_view word) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::pair<std::size_t, std::int32_t>> rules;
  for (std::size_t rank = 0; rank < model.merges.size(); ++rank) {
    const auto& merge = model.merges[rank];
    rules[{merge.left, merge.right}] = {rank, merge.result};
  }
  std::vector<std::int32_t> ids;
  for (const char c : word) {
    ids.push_back(static_cast<std::int32_t>(std::ranges::find(model.tokens, std::string(1, c)) -
                                            model.tokens.begin()));
  }
  for (;;) {
    std::size_t best = ids.size();
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto rule = rules.find({ids[i], ids[i + 1]});
      if (rule == rules.end()) continue;
      if (best == ids.size() || rule->second < rules.at({ids[best], ids[best + 1]})) best = i;
    }
    if (best == ids.size()) return ids;
    ids[best] = rules.at({ids[best], ids[best + 1]}).second;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Tokenizer, MergesByRankLeftmostFirst) {
  BpeTrainer trainer;
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {  // Words of two letters only: many overlapping merges.
    std::string word;
    for (int j = 0; j < 12; ++j) word += random() % 3 ? 'a' : 'b';
    trainer.add(word);
  }
  const Tokenizer tokenizer(trainer.train(330));
  for (int i = 0; i < 500; ++i) {
    std::string word;
    for (int j = static_cast<int>(random() % 100); j >= 0; --j) word += random() % 3 ? 'a' : 'b';
    ASSERT_EQ(tokenizer.encode(word), merge_plainly(tokenizer.model(), word)) << word;
  }
}

TEST(Tokenizer, LongWordsAreQuick) {
  const Tokenizer tokenizer = trained(TokenizerPattern::kGpt2);
  const std::string word(1'000'000, 'e');
  EXPECT_EQ(tokenizer.decode(std::span<const std::int32_t>(tokenizer.encode(word))), word);
}

TEST(Tokenizer, IgnoreMergesTakesWholeWords) {
  TokenizerModel model = trained(TokenizerPattern::kGpt2).model();
  model.tokens.push_back("zq");  // A token that no merge makes.
  const auto id = static_cast<std::int32_t>(model.tokens.size() - 1);
  EXPECT_EQ(Tokenizer(model).encode("zq").size(), 2u);
  model.ignore_merges = true;
  EXPECT_EQ(Tokenizer(model).encode("zq"), std::vector<std::int32_t>{id});
}

TEST(Tokenizer, AddedTokensComeFirst) {
  TokenizerModel model = trained(TokenizerPattern::kGpt2).model();
  const auto add = [&](AddedToken token) {
    token.id = static_cast<std::int32_t>(model.tokens.size());
    model.tokens.push_back(token.content);
    model.added.push_back(token);
    return token.id;
  };
  const auto end = *model.end_of_text();
  const auto longer = add({.content = "<|endoftext|>>"});
  const auto strip = add({.content = "[S]", .lstrip = true, .rstrip = true});
  const auto single = add({.content = "god", .single_word = true});
  const Tokenizer tokenizer(model);
  const auto a = tokenizer.encode("a")[0], b = tokenizer.encode("b")[0];
  using Ids = std::vector<std::int32_t>;
  const auto has = [](const Ids& ids, std::int32_t id) {
    return std::ranges::find(ids, id) != ids.end();
  };
  EXPECT_EQ(tokenizer.encode("a<|endoftext|>b"), (Ids{a, end, b}));
  EXPECT_EQ(tokenizer.encode("a<|endoftext|>>b"), (Ids{a, longer, b}));
  EXPECT_EQ(tokenizer.encode("a \t[S]\n\u3000b"), (Ids{a, strip, b}));
  EXPECT_EQ(tokenizer.encode("god")[0], single);
  EXPECT_FALSE(has(tokenizer.encode("godly agod"), single));
}

TEST(Tokenizer, AsksForNfcWhereTheModelDoes) {
  TokenizerModel model = trained(TokenizerPattern::kQwen2).model();
  model.nfc = true;
  const Tokenizer tokenizer(model);
  EXPECT_NO_THROW(tokenizer.encode("caf\u00e9 \u65e5\u672c \uac01"));
  EXPECT_THROW(tokenizer.encode("cafe\u0301"), Error);
  EXPECT_THROW(tokenizer.encode("\u212b"), Error);
}

TEST(Tokenizer, RefusesTokensBeyondTheVocabulary) {
  const Tokenizer tokenizer = trained(TokenizerPattern::kGpt2);
  const std::int64_t beyond[] = {tokenizer.vocab_size()}, negative[] = {-1};
  EXPECT_THROW(tokenizer.decode(std::span<const std::int64_t>(beyond)), Error);
  EXPECT_THROW(tokenizer.decode(std::span<const std::int64_t>(negative)), Error);
}

TEST(TextCut, PartsEncodeAsTheWhole) {
  std::mt19937 random(11);
  for (const auto pattern : kPatterns) {
    TokenizerModel model = trained(pattern).model();
    const auto add = [&](AddedToken token) {
      token.id = static_cast<std::int32_t>(model.tokens.size());
      model.tokens.push_back(token.content);
      model.added.push_back(token);
    };
    add({.content = "the and"});
    add({.content = "earth", .lstrip = true, .rstrip = true});
    const Tokenizer tokenizer(model);
    int cuts = 0;
    for (int i = 0; i < 3000; ++i) {
      const std::string text = random_text(random);
      const std::size_t cut = tokenizer.find_cut(text, text.size());
      if (cut == 0) continue;
      ++cuts;
      auto parts = tokenizer.encode(text.substr(0, cut));
      const auto rest = tokenizer.encode(text.substr(cut));
      parts.insert(parts.end(), rest.begin(), rest.end());
      ASSERT_EQ(parts, tokenizer.encode(text)) << text << " at " << cut;
    }
    EXPECT_GT(cuts, 100);
  }
}

TEST(TextCut, FindsTheLastPlace) {
  EXPECT_EQ(find_text_cut("one two three", 100), 7u);
  EXPECT_EQ(find_text_cut("one two three", 6), 3u);
  EXPECT_EQ(find_text_cut("one\ntwo", 100), 4u);
  EXPECT_EQ(find_text_cut("one\ntwo", 3), 0u);
  EXPECT_EQ(find_text_cut("one  two", 100), 0u);
  EXPECT_EQ(find_text_cut("", 100), 0u);
}

TEST(BpeTrainer, MergesTheMostFrequentPair) {
  BpeTrainer trainer;
  for (int i = 0; i < 3; ++i) trainer.add("abab");
  trainer.add("cd");
  trainer.add("cd");
  const TokenizerModel model = trainer.train(1000);
  ASSERT_EQ(model.merges.size(), 3u);  // ab 6 times, abab 3, cd 2.
  EXPECT_EQ(model.tokens[256], "ab");
  EXPECT_EQ(model.tokens[257], "abab");
  EXPECT_EQ(model.tokens[258], "cd");
  EXPECT_EQ(model.tokens[259], "<|endoftext|>");
  EXPECT_EQ(model.end_of_text(), 259);
}

/// The definition: count all pairs anew for every merge.
TEST(BpeTrainer, AgreesWithCountingAnew) {
  std::mt19937 random(5);
  Words texts;
  for (int i = 0; i < 100; ++i) {
    std::string word;
    for (int j = 0; j < 40; ++j) word += static_cast<char>('a' + random() % 3);
    texts.push_back(word);
  }
  BpeTrainer trainer;
  for (const auto& text : texts) trainer.add(text);
  const TokenizerModel model = trainer.train(400);
  std::vector<std::vector<std::string>> state;
  for (const auto& text : texts) {
    auto& symbols = state.emplace_back();
    for (const char c : text) symbols.emplace_back(1, c);
  }
  const auto id = [&](const std::string& token) {
    return std::ranges::find(model.tokens, token) - model.tokens.begin();
  };
  for (const TokenizerMerge& merge : model.merges) {
    std::map<std::pair<std::string, std::string>, int> counts;
    for (const auto& symbols : state) {
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) ++counts[{symbols[i], symbols[i + 1]}];
    }
    const auto best = std::ranges::max_element(counts, [&](const auto& a, const auto& b) {
      if (a.second != b.second) return a.second < b.second;
      return std::pair(id(a.first.first), id(a.first.second)) >
             std::pair(id(b.first.first), id(b.first.second));
    });
    ASSERT_EQ(model.tokens[static_cast<std::size_t>(merge.left)], best->first.first);
    ASSERT_EQ(model.tokens[static_cast<std::size_t>(merge.right)], best->first.second);
    const auto [left, right] = best->first;
    for (auto& symbols : state) {
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        if (symbols[i] != left || symbols[i + 1] != right) continue;
        symbols[i] += right;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  EXPECT_GT(model.merges.size(), 100u);
}

TEST(BpeTrainer, DependsOnTheTextAlone) {
  BpeTrainer whole, first, second;
  whole.add(kProse);
  const std::string_view text = kProse;
  const std::size_t cut = find_text_cut(text, text.size() / 2);
  ASSERT_GT(cut, 0u);
  second.add(text.substr(cut));
  first.add(text.substr(0, cut));
  second.add(first);
  EXPECT_EQ(whole.train(320).fingerprint(), second.train(320).fingerprint());
}

}  // namespace
}  // namespace fourfold
