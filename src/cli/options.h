#pragma once

#include <string>
#include <vector>

#include "train/commands.h"

namespace fourfold {

/// `fourfold data tokenizer`: trains a byte-level BPE and writes tokenizer.json.
struct DataTokenizerOptions {
  std::vector<std::string> inputs;  ///< Text files, or JSON lines (.jsonl) with a "text" member.
  int vocab = 0;                    ///< Entries, the 256 bytes and special tokens included.
  std::string output;
};

/// `fourfold data prepare`: text to token files.
struct DataPrepareOptions {
  std::vector<std::string> inputs;
  std::string tokenizer;      ///< tokenizer.json.
  std::string output;         ///< Prefix of .bin and .idx.
  double valid_fraction = 0;  ///< Share of the documents that goes to PREFIX-valid.
};

/// `fourfold data show`: what a token file holds.
struct DataShowOptions {
  std::string path;       ///< A prefix of .bin and .idx, or one of the two files.
  std::string tokenizer;  ///< To print tokens as text; empty: as numbers.
  int tokens = 64;        ///< Tokens of the start that are printed.
};

/// `fourfold ckpt ls|show|verify`: a run folder, its checkpoints/, or one step of it.
struct CkptOptions {
  std::string dir;
};

}  // namespace fourfold
