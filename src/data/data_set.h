#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "data/tokenizer.h"
#include "formats/data_info.h"
#include "formats/token_file.h"

namespace fourfold {

/// A token file, and what `data prepare` wrote about it where it did.
struct DataSet {
  TokenFile tokens;
  std::optional<DataInfo> info;
};

/// Opens PREFIX.bin and .idx, and checks what is known of them without reading the tokens: that
/// `tokenizer` (may be null) is the one that made them, and that a model of `model_vocab` tokens
/// (0: no model) holds every id. Tokens of other programs, which have no PREFIX.json, are checked
/// as they are read (sampler.h).
Result<DataSet> open_data_set(const std::string& prefix, const Tokenizer* tokenizer,
                              std::int64_t model_vocab);

/// A report for people: counts, type, lengths of documents, what the tokenizer was, and the first
/// `shown` tokens, as text where there is a tokenizer.
std::string describe_data(const DataSet& data, const Tokenizer* tokenizer, std::int64_t shown);

}  // namespace fourfold
