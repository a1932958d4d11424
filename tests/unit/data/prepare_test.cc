#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/error.h"
#include "data/commands.h"
#include "data/data_set.h"
#include "data/parallel_encoder.h"
#include "data/text_reader.h"

namespace fourfold {
namespace {

class Prepare : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/prepare_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    put("learn.txt", "the cat sat on the mat. the dog sat on the log.\n");
    train_tokenizer({.inputs = {path("learn.txt")}, .output = tokenizer_path(), .vocab_size = 270},
                    Log());
    tokenizer_ = Tokenizer::open(tokenizer_path()).value();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string tokenizer_path() const { return path("tokenizer.json"); }
  std::string put(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

  void prepare(std::vector<std::string> inputs, double valid_fraction = 0, int threads = 2) const {
    prepare_data({.inputs = std::move(inputs),
                  .tokenizer = tokenizer_path(),
                  .output = path("out/data"),
                  .valid_fraction = valid_fraction,
                  .threads = threads},
                 Log());
  }

  /// The documents of a data set as text.
  std::vector<std::string> documents(const std::string& name) const {
    const auto data = open_data_set(path(name), &*tokenizer_, tokenizer_->vocab_size()).value();
    std::vector<std::string> out;
    const TokenIndex& index = data.tokens.index();
    for (std::int64_t d = 0; d < index.documents(); ++d) {
      auto& text = out.emplace_back();
      for (auto s = index.document_begin(d); s < index.document_begin(d + 1); ++s) {
        std::vector<std::int64_t> tokens(static_cast<std::size_t>(index.sequence_length(s)));
        data.tokens.read(index.sequence_begin(s), index.sequence_length(s), tokens.data());
        text += tokenizer_->decode(std::span<const std::int64_t>(tokens));
      }
    }
    return out;
  }

  std::string error_of(std::vector<std::string> inputs, double fraction = 0) const {
    try {
      prepare(std::move(inputs), fraction);
      return "accepted";
    } catch (const Error& error) {
      return error.what();
    }
  }

  std::string folder_;
  std::optional<Tokenizer> tokenizer_;
};

using Texts = std::vector<std::string>;

#define EXPECT_CONTAINS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << (text) << " lacks " << (part)

TEST_F(Prepare, TextAndJsonLines) {
  prepare({put("a.txt", "the cat\n"), put("b.jsonl",
                                          "{\"text\": \"on\\nit\"}\n\n{\"text\": \"\"}\r\n"
                                          "{\"id\": 1, \"text\": \"\xc3\xa9\"}")});
  EXPECT_EQ(documents("out/data"),
            (Texts{"the cat\n<|endoftext|>", "on\nit<|endoftext|>", "\u00e9<|endoftext|>"}));
  const auto data = open_data_set(path("out/data"), nullptr, 0).value();
  ASSERT_TRUE(data.info.has_value());
  EXPECT_EQ(data.info->documents, 3);
  EXPECT_EQ(data.info->text_bytes, 8 + 5 + 2);
  EXPECT_EQ(data.info->vocab_size, tokenizer_->vocab_size());
  EXPECT_EQ(data.info->max_token, tokenizer_->vocab_size() - 1);
  EXPECT_EQ(data.tokens.index().type(), TokenType::kU16);
}

/// Pieces, threads and batches change nothing: the tokens are those of the text as a whole.
TEST_F(Prepare, LongTextsEncodeAsAWhole) {
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i) {
    text += "the cat" + std::to_string(i) + (i % 7 == 0 ? ".\n\n" : i % 3 == 0 ? "\n" : " sat  on");
  }
  put("long.txt", text);
  const auto whole = tokenizer_->encode(text);
  for (const int threads : {1, 3}) {
    prepare({path("long.txt")}, 0, threads);
    const auto data = open_data_set(path("out/data"), &*tokenizer_, 0).value();
    ASSERT_EQ(data.tokens.size(), static_cast<std::int64_t>(whole.size()) + 1);
    std::vector<std::int32_t> tokens(whole.size());
    data.tokens.read(0, static_cast<std::int64_t>(whole.size()), tokens.data());
    EXPECT_TRUE(tokens == whole);
  }
}

TEST_F(Prepare, FewDocumentsAreCutAtALineEnd) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "the mat number " + std::to_string(i) + "\n";
  prepare({put("a.txt", text)}, 0.25);
  const auto train = documents("out/data-train"), valid = documents("out/data-valid");
  ASSERT_EQ(train.size(), 1u);
  ASSERT_EQ(valid.size(), 1u);
  const std::string end = "<|endoftext|>";
  const std::string first = train[0].substr(0, train[0].size() - end.size());
  const std::string second = valid[0].substr(0, valid[0].size() - end.size());
  EXPECT_EQ(first + second, text);
  EXPECT_TRUE(first.ends_with("\n"));
  EXPECT_GE(first.size(), text.size() * 3 / 4);
  EXPECT_LT(first.size(), text.size() * 3 / 4 + 20);
}

TEST_F(Prepare, TheCutMayFallAnywhere) {
  const std::string end = "<|endoftext|>";
  const std::string a = "cat\ndog\n", b = "mat\nlog";
  put("a.txt", a);
  put("b.txt", b);
  for (int percent = 1; percent < 100; percent += 6) {
    const std::string error = error_of({path("a.txt"), path("b.txt")}, percent / 100.0);
    const auto train_bytes = static_cast<std::size_t>(std::ceil(15 * (1 - percent / 100.0)));
    const Texts expected = train_bytes <= 4    ? Texts{"cat\n" + end}
                           : train_bytes <= 8  ? Texts{"cat\ndog\n" + end}
                           : train_bytes <= 12 ? Texts{"cat\ndog\n" + end, "mat\n" + end}
                                               : Texts{};
    if (expected.empty()) {
      EXPECT_CONTAINS(error, "data-valid: no text falls into this part");
      continue;
    }
    ASSERT_EQ(error, "accepted") << percent;
    EXPECT_EQ(documents("out/data-train"), expected) << percent;
    std::string all;
    for (const auto* part : {"out/data-train", "out/data-valid"}) {
      for (const auto& text : documents(part)) all += text.substr(0, text.size() - end.size());
    }
    EXPECT_EQ(all, a + b);
  }
}

TEST_F(Prepare, ManyDocumentsAreSplitByDocument) {
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "{\"text\": \"cat " + std::to_string(i) + "\"}\n";
  prepare({put("a.jsonl", lines)}, 0.05);
  EXPECT_EQ(documents("out/data-train").size(), 95u);
  EXPECT_EQ(documents("out/data-valid"),
            (Texts{"cat 19<|endoftext|>", "cat 39<|endoftext|>", "cat 59<|endoftext|>",
                   "cat 79<|endoftext|>", "cat 99<|endoftext|>"}));
}

TEST_F(Prepare, BadInput) {
  const std::string good = put("good.txt", "the cat\n");
  EXPECT_CONTAINS(error_of({path("none.txt")}), "none.txt: cannot open: No such file");
  EXPECT_CONTAINS(error_of({put("empty.txt", "")}), "empty.txt: empty file");
  EXPECT_CONTAINS(error_of({folder_}), "Is a directory");
  EXPECT_CONTAINS(error_of({put("x.txt.gz", "x")}), "neither text nor JSON lines");
  EXPECT_CONTAINS(error_of({put("a.jsonl", "{\"text\": \"a\"}\n\n{\"text\" 1}\n")}),
                  "a.jsonl:3: not valid JSON");
  EXPECT_CONTAINS(error_of({put("b.jsonl", "{\"txt\": \"a\"}\n")}),
                  "b.jsonl:1: no string member 'text'");
  EXPECT_CONTAINS(error_of({put("c.jsonl", "{\"text\": \"\"}\n")}), "no text falls into this part");
  EXPECT_CONTAINS(error_of({}), "no input files");
  EXPECT_CONTAINS(error_of({good}, 1.0), "not in [0, 1)");
  EXPECT_CONTAINS(error_of({good}, std::nan("")), "not in [0, 1)");
  EXPECT_CONTAINS(error_of({put("one.txt", "no line end here")}, 0.1), "no text falls into");
  // What failed has left nothing, and what was there before is still there.
  EXPECT_FALSE(std::filesystem::exists(path("out/data.bin")));
  prepare({good});
  EXPECT_CONTAINS(error_of({good, path("none.txt")}), "cannot open");
  EXPECT_EQ(documents("out/data").size(), 1u);
  for (const auto& entry : std::filesystem::directory_iterator(path("out"))) {
    EXPECT_FALSE(entry.path().string().ends_with(".tmp")) << entry.path();
  }
}

TEST_F(Prepare, NeedsAnEndOfText) {
  TokenizerModel model = tokenizer_->model();
  model.tokens.pop_back();
  model.added.clear();
  write_tokenizer_json(tokenizer_path(), model);
  EXPECT_CONTAINS(error_of({put("a.txt", "the cat")}), "no end-of-text token");
  put("tokenizer.json", "{}");
  EXPECT_CONTAINS(error_of({path("a.txt")}), "tokenizer.json: ");
}

TEST_F(Prepare, OpeningChecksTokenizerAndModel) {
  prepare({put("a.txt", "the cat\n")});
  const std::string prefix = path("out/data");
  const std::int64_t vocab = tokenizer_->vocab_size();
  EXPECT_TRUE(open_data_set(prefix, &*tokenizer_, vocab).ok());
  const auto small = open_data_set(prefix, nullptr, vocab - 1);
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.error().kind(), ErrorKind::kData);
  EXPECT_CONTAINS(std::string(small.error().what()),
                  "the model's vocabulary is " + std::to_string(vocab - 1));
  put("other.txt", "quite another text, quite another tokenizer\n");
  train_tokenizer({.inputs = {path("other.txt")}, .output = path("o.json"), .vocab_size = 260},
                  Log());
  const Tokenizer other = Tokenizer::open(path("o.json")).value();
  const auto foreign = open_data_set(prefix, &other, 0);
  ASSERT_FALSE(foreign.ok());
  EXPECT_CONTAINS(std::string(foreign.error().what()), "made with another tokenizer");
  std::filesystem::remove(prefix + ".json");
  EXPECT_TRUE(open_data_set(prefix, &other, 1).ok());  // Nothing is known of the data.
}

TEST_F(Prepare, ShowsWhatIsThere) {
  prepare({put("a.txt", "the cat\n")});
  const std::string text = show_data({.prefix = path("out/data"), .tokenizer = tokenizer_path()});
  EXPECT_CONTAINS(text, "documents    1");
  EXPECT_CONTAINS(text, "the cat\n<|endoftext|>");
  EXPECT_CONTAINS(text, tokenizer_->fingerprint());
  EXPECT_THROW(show_data({.prefix = path("none"), .tokenizer = ""}), Error);
}

TEST_F(Prepare, TokenizerOptions) {
  const auto train = [&](int vocab, std::vector<std::string> inputs) {
    train_tokenizer({.inputs = std::move(inputs), .output = path("t.json"), .vocab_size = vocab},
                    Log());
  };
  EXPECT_THROW(train(256, {path("learn.txt")}), Error);
  EXPECT_THROW(train(300, {path("none.txt")}), Error);
  EXPECT_FALSE(std::filesystem::exists(path("t.json")));
  EXPECT_FALSE(std::filesystem::exists(path("t.json.tmp")));
  std::vector<std::string> warnings;
  const Log log([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::kWarning) warnings.emplace_back(line);
  });
  train_tokenizer({.inputs = {path("learn.txt")}, .output = path("t.json"), .vocab_size = 100'000},
                  log);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_CONTAINS(warnings[0], "100,000 were asked for");
}

TEST(ParallelFor, PassesTheFirstFailureOn) {
  std::vector<int> seen(1000);
  parallel_for(1000, 4, [&](std::size_t i, int) { ++seen[i]; });
  EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), 1000);
  EXPECT_THROW(parallel_for(1000, 4,
                            [](std::size_t i, int) {
                              if (i == 500) throw Error(ErrorKind::kData, "x");
                            }),
               Error);
  parallel_for(0, 4, [](std::size_t, int) { FAIL(); });
}

TEST(TextBatcher, CutsTextWithoutAPlaceToCut) {
  std::string all;
  std::size_t largest = 0;
  TextBatcher batcher([](std::string_view, std::size_t) { return std::size_t{0}; },
                      [&](TextBatcher::Batch& batch) {
                        for (const auto& piece : batch) {
                          all += piece.text;
                          largest = std::max(largest, piece.text.size());
                          EXPECT_EQ(piece.text.size() % 3, 0u);  // Never inside a character.
                        }
                      });
  std::string character = "\u65e5", piece;
  for (int i = 0; i < 500'000; ++i) piece += character;
  for (int i = 0; i < 60; ++i) batcher.add({piece, i == 59});
  batcher.flush();
  EXPECT_EQ(all.size(), piece.size() * 60);
  EXPECT_LE(largest, TextBatcher::kMaxPieceBytes);
}

TEST(TextReader, LinesMayBeLongerThanAPiece) {
  const std::string path = testing::TempDir() + "/reader.jsonl";
  Texts texts;
  std::ofstream out(path);
  for (int i = 0; i < 50; ++i) {
    texts.emplace_back(static_cast<std::size_t>(i * 7 + 1), static_cast<char>('a' + i % 26));
    out << "{\"text\": \"" << texts.back() << "\"}\n";
  }
  out.close();
  for (const std::size_t piece_bytes : {1, 2, 13, 100, 100'000}) {
    TextReader reader({path}, "text", piece_bytes);
    Texts read;
    for (TextPiece piece; reader.next(piece);) read.push_back(piece.text);
    EXPECT_EQ(read, texts);
  }
}

}  // namespace
}  // namespace fourfold
