#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "formats/tokenizer_json.h"

namespace fourfold {

// What `fourfold data ...` does. Failures throw Error; what was done is told through the log.

/// `data tokenizer`: trains a byte-level BPE tokenizer on text and writes a tokenizer.json.
struct TrainTokenizerOptions {
  std::vector<std::string> inputs{};  ///< Text files, or .jsonl with the text in `json_field`.
  std::string output{};
  int vocab_size = 0;  ///< With the 256 bytes and the end-of-text token.
  TokenizerPattern pattern = TokenizerPattern::kGpt2;
  std::string json_field = "text";
  int threads = 0;  ///< 0: one per core.
};
void train_tokenizer(const TrainTokenizerOptions& options, const Log& log);

/// `data prepare`: writes OUTPUT.bin, .idx and .json, or OUTPUT-train and OUTPUT-valid when
/// valid_fraction > 0. Each document ends with the end-of-text token. With 100 documents or more,
/// every (1 / valid_fraction)-th is held out; with fewer, the last part of the text is, cut at a
/// line end. Memory does not grow with the input.
struct PrepareDataOptions {
  std::vector<std::string> inputs{};
  std::string tokenizer{};    ///< tokenizer.json.
  std::string output{};       ///< Prefix of the token files.
  double valid_fraction = 0;  ///< In [0, 1).
  std::string json_field = "text";
  int threads = 0;  ///< 0: one per core.
};
void prepare_data(const PrepareDataOptions& options, const Log& log);

/// `data show`: what describe_data() of data_set.h says.
struct ShowDataOptions {
  std::string prefix{};     ///< Of .bin and .idx, or one of the two files.
  std::string tokenizer{};  ///< Empty: show ids only.
  int tokens = 64;          ///< Of the start, that are shown.
};
std::string show_data(const ShowDataOptions& options);

}  // namespace fourfold
