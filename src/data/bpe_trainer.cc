#include "data/bpe_trainer.h"

#include <algorithm>
#include <array>
#include <queue>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace fourfold {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

using Pair = std::pair<std::int32_t, std::int32_t>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const std::uint64_t key =
        static_cast<std::uint64_t>(pair.first) << 32 | static_cast<std::uint32_t>(pair.second);
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15u) >> 20);
  }
};

struct Word {
  std::vector<std::int32_t> symbols;
  std::int64_t count;
};

struct PairUse {
  std::int64_t count = 0;
  std::vector<std::int32_t> words;  ///< Where the pair is or was; may hold a word twice.
};

struct Candidate {
  std::int64_t count;
  Pair pair;

  /// Order of a max-heap: more frequent first, then lower ids.
  bool operator<(const Candidate& other) const {
    return std::tie(count, other.pair) < std::tie(other.count, pair);
  }
};

/// The merge loop. The counts in the heap are upper bounds: a pair's count only falls, or its new
/// count is pushed, so a candidate that is out of date is pushed again with its count of now.
class MergeLoop {
 public:
  explicit MergeLoop(std::vector<Word> words) : words_(std::move(words)) {
    for (std::size_t w = 0; w < words_.size(); ++w) {
      const auto& symbols = words_[w].symbols;
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        change({symbols[i], symbols[i + 1]}, words_[w].count, static_cast<std::int32_t>(w));
      }
    }
    push_grown();
  }

  /// The next pair to merge; false where none is frequent enough.
  bool next(Pair& pair) {
    while (!heap_.empty()) {
      const Candidate top = heap_.top();
      heap_.pop();
      const std::int64_t count = uses_[top.pair].count;
      if (count == top.count && count >= BpeTrainer::kMinFrequency) {
        pair = top.pair;
        return true;
      }
      if (count < top.count && count >= BpeTrainer::kMinFrequency) heap_.push({count, top.pair});
    }
    return false;
  }

  void merge(const Pair& pair, std::int32_t result) {
    std::vector<std::int32_t> places = std::move(uses_[pair].words);
    uses_[pair].words.clear();
    std::ranges::sort(places);
    const auto repeated = std::ranges::unique(places);
    places.erase(repeated.begin(), repeated.end());
    for (const std::int32_t w : places) merge_word(w, pair, result);
    push_grown();
  }

 private:
  void change(const Pair& pair, std::int64_t by, std::int32_t word) {
    PairUse& use = uses_[pair];
    use.count += by;
    if (by < 0) return;
    if (use.words.empty() || use.words.back() != word) use.words.push_back(word);
    grown_.push_back(pair);
  }

  void push_grown() {
    std::ranges::sort(grown_);
    const auto repeated = std::ranges::unique(grown_);
    grown_.erase(repeated.begin(), repeated.end());
    for (const Pair& pair : grown_) heap_.push({uses_[pair].count, pair});
    grown_.clear();
  }

  void merge_word(std::int32_t w, const Pair& pair, std::int32_t result) {
    Word& word = words_[static_cast<std::size_t>(w)];
    auto& symbols = word.symbols;
    std::size_t out = 0;
    for (std::size_t in = 0; in < symbols.size();) {
      if (in + 1 == symbols.size() || Pair(symbols[in], symbols[in + 1]) != pair) {
        symbols[out++] = symbols[in++];
        continue;
      }
      change(pair, -word.count, w);
      if (out > 0) {
        change({symbols[out - 1], pair.first}, -word.count, w);
        change({symbols[out - 1], result}, word.count, w);
      }
      if (in + 2 < symbols.size()) {
        change({pair.second, symbols[in + 2]}, -word.count, w);
        change({result, symbols[in + 2]}, word.count, w);
      }
      symbols[out++] = result;
      in += 2;
    }
    symbols.resize(out);
  }

  std::vector<Word> words_;
  std::unordered_map<Pair, PairUse, PairHash> uses_;
  std::vector<Pair> grown_;
  std::priority_queue<Candidate> heap_;
};

bool has_merge(const TokenizerModel& model, const Pair& pair) {
  return std::ranges::any_of(model.merges, [&](const TokenizerMerge& merge) {
    return Pair(merge.left, merge.right) == pair;
  });
}

}  // namespace

BpeTrainer::BpeTrainer(TokenizerPattern pattern)
    : pattern_(pattern), pretokenizer_(pattern), scanner_(pretokenizer_) {}

void BpeTrainer::add(std::string_view text) {
  scanner_.for_each_word(text, [&](std::string_view word) {
    const auto it = words_.find(word);
    if (it != words_.end()) {
      ++it->second;
    } else {
      words_.emplace(word, 1);
    }
  });
}

void BpeTrainer::add(const BpeTrainer& other) {
  FF_CHECK(pattern_ == other.pattern_, "trainers of two patterns");
  for (const auto& [word, count] : other.words_) words_[word] += count;
}

TokenizerModel BpeTrainer::train(std::int64_t vocab_size) const {
  FF_CHECK(vocab_size >= kMinVocab, "vocab_size {}", vocab_size);
  TokenizerModel model;
  model.pattern = pattern_;
  std::array<std::int32_t, 256> byte_ids{};
  std::unordered_map<std::string, std::int32_t> ids;
  const auto add_token = [&](std::string token) {
    const auto id = static_cast<std::int32_t>(model.tokens.size());
    ids.emplace(token, id);
    model.tokens.push_back(std::move(token));
    return id;
  };
  for (const std::uint8_t byte : alphabet_order()) {
    byte_ids[byte] = add_token(std::string(1, static_cast<char>(byte)));
  }
  std::vector<Word> words;
  words.reserve(words_.size());
  for (const auto& [text, count] : words_) {
    Word word{{}, count};
    for (const char c : text) word.symbols.push_back(byte_ids[static_cast<unsigned char>(c)]);
    words.push_back(std::move(word));
  }
  MergeLoop loop(std::move(words));
  Pair pair;
  while (model.vocab_size() < vocab_size - 1 && loop.next(pair)) {
    std::string text = model.tokens[static_cast<std::size_t>(pair.first)] +
                       model.tokens[static_cast<std::size_t>(pair.second)];
    // Two pairs may make the same token ("ab" + "c", "a" + "bc").
    const auto known = ids.find(text);
    const std::int32_t result = known != ids.end() ? known->second : add_token(std::move(text));
    const bool again = known != ids.end() && has_merge(model, pair);
    if (!again) model.merges.push_back({pair.first, pair.second, result});
    loop.merge(pair, result);
  }
  AddedToken end;
  end.content = kEndOfText;
  end.id = add_token(std::string(kEndOfText));
  model.added.push_back(std::move(end));
  return model;
}

}  // namespace fourfold
