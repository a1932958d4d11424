#include "formats/data_info.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "formats/file_io.h"

namespace fourfold {
namespace {

constexpr const char* kFormat = "fourfold-data-1";
constexpr std::uint64_t kMaxBytes = 1 << 20;

}  // namespace

void write_data_info(const std::string& prefix, const DataInfo& info) {
  const nlohmann::ordered_json json = {
      {"format", kFormat},
      {"tokenizer_fingerprint", info.tokenizer_fingerprint},
      {"vocab_size", info.vocab_size},
      {"end_of_text", info.end_of_text},
      {"max_token", info.max_token},
      {"tokens", info.tokens},
      {"documents", info.documents},
      {"text_bytes", info.text_bytes},
  };
  write_text_file(prefix + ".json", json.dump(2) + "\n");
}

Result<std::optional<DataInfo>> read_data_info(const std::string& prefix) {
  const std::string path = prefix + ".json";
  if (::access(path.c_str(), F_OK) != 0) return std::optional<DataInfo>();
  const auto text = read_text_file(path, kMaxBytes);
  if (!text) return text.error();
  try {
    const auto json = nlohmann::json::parse(text.value());
    if (json.at("format") != kFormat) throw std::invalid_argument("another format");
    DataInfo info;
    json.at("tokenizer_fingerprint").get_to(info.tokenizer_fingerprint);
    json.at("vocab_size").get_to(info.vocab_size);
    json.at("end_of_text").get_to(info.end_of_text);
    json.at("max_token").get_to(info.max_token);
    json.at("tokens").get_to(info.tokens);
    json.at("documents").get_to(info.documents);
    json.at("text_bytes").get_to(info.text_bytes);
    return std::optional(info);
  } catch (const std::exception&) {
    return Error(ErrorKind::kData, path + ": not what 'fourfold data prepare' writes there",
                 "make the data again with 'fourfold data prepare'");
  }
}

}  // namespace fourfold
