#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>

#include "formats/tokenizer_json.h"

namespace fourfold {
namespace {

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string added_tokens(const TokenizerModel& model) {
  std::string out;
  for (const AddedToken& token : model.added) {
    out += fmt::format(
        "{}\n    {{\"id\": {}, \"content\": {}, \"single_word\": {}, \"lstrip\": {}, "
        "\"rstrip\": {}, \"normalized\": {}, \"special\": {}}}",
        out.empty() ? "" : ",", token.id, json_string(token.content), token.single_word,
        token.lstrip, token.rstrip, token.normalized, token.special);
  }
  return "[" + out + (out.empty() ? "]" : "\n  ]");
}

std::string pre_tokenizer(const TokenizerModel& model) {
  const auto byte_level = [](bool use_regex) {
    return fmt::format(R"({{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, )"
                       R"("use_regex": {}}})",
                       use_regex);
  };
  if (model.pattern == TokenizerPattern::kGpt2) return byte_level(true);
  return fmt::format(
      R"({{"type": "Sequence", "pretokenizers": [
    {{"type": "Split", "pattern": {{"Regex": {}}}, "behavior": "Isolated", "invert": false}},
    {}]}})",
      json_string(tokenizer_pattern_regex(model.pattern)), byte_level(false));
}

/// The vocabulary by id. Added tokens stand there as they are written, so that every reader gives
/// them the same id.
std::string vocab(const TokenizerModel& model) {
  std::unordered_map<std::int32_t, std::string_view> added;
  for (const AddedToken& token : model.added) added.emplace(token.id, token.content);
  std::string out;
  for (std::size_t id = 0; id < model.tokens.size(); ++id) {
    if (model.tokens[id].empty()) continue;
    const auto it = added.find(static_cast<std::int32_t>(id));
    const std::string text =
        it == added.end() ? bytes_to_alphabet(model.tokens[id]) : std::string(it->second);
    out += fmt::format("{}\n      {}: {}", out.empty() ? "" : ",", json_string(text), id);
  }
  return out;
}

std::string merges(const TokenizerModel& model) {
  const auto name = [&](std::int32_t id) {
    return bytes_to_alphabet(model.tokens[static_cast<std::size_t>(id)]);
  };
  std::string out;
  for (const TokenizerMerge& merge : model.merges) {
    // The older form, which every reader takes: the alphabet has no space.
    out += fmt::format("{}\n      {}", out.empty() ? "" : ",",
                       json_string(name(merge.left) + " " + name(merge.right)));
  }
  return out;
}

}  // namespace

std::string format_tokenizer_json(const TokenizerModel& model) {
  constexpr const char* kByteLevelDecoder =
      R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})";
  return fmt::format(
      R"({{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": {},
  "normalizer": {},
  "pre_tokenizer": {},
  "post_processor": null,
  "decoder": {},
  "model": {{
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": {},
    "vocab": {{{}
    }},
    "merges": [{}
    ]
  }}
}}
)",
      added_tokens(model), model.nfc ? R"({"type": "NFC"})" : "null", pre_tokenizer(model),
      kByteLevelDecoder, model.ignore_merges, vocab(model), merges(model));
}

}  // namespace fourfold
