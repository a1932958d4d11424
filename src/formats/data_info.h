#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"

namespace fourfold {

/// What `data prepare` writes beside a data set, as PREFIX.json: what the tokens mean.
struct DataInfo {
  std::string tokenizer_fingerprint;  ///< TokenizerModel::fingerprint().
  std::int64_t vocab_size = 0;        ///< Of the tokenizer.
  std::int64_t end_of_text = 0;       ///< The token after each document.
  std::int64_t max_token = 0;
  std::int64_t tokens = 0;
  std::int64_t documents = 0;
  std::int64_t text_bytes = 0;
};

/// Atomic. Throws Error.
void write_data_info(const std::string& prefix, const DataInfo& info);

/// None where there is no such file: data of other programs have none.
Result<std::optional<DataInfo>> read_data_info(const std::string& prefix);

}  // namespace fourfold
