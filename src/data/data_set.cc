#include "data/data_set.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/units.h"
#include "formats/utf8.h"

namespace fourfold {
namespace {

Error mismatch(std::string message) {
  return Error(ErrorKind::kData, std::move(message),
               "use the tokenizer the data was prepared with, or prepare it again with 'fourfold "
               "data prepare'");
}

/// Tokens of a document: those of its sequences.
std::int64_t document_tokens(const TokenIndex& index, std::int64_t document) {
  std::int64_t tokens = 0;
  for (auto s = index.document_begin(document); s < index.document_begin(document + 1); ++s) {
    tokens += index.sequence_length(s);
  }
  return tokens;
}

std::string describe_lengths(const TokenIndex& index) {
  if (index.documents() == 0) return "";
  std::vector<std::int64_t> lengths;
  for (std::int64_t d = 0; d < index.documents(); ++d) {
    lengths.push_back(document_tokens(index, d));
  }
  std::ranges::sort(lengths);
  return fmt::format("  lengths      {} to {}, median {} tokens a document\n",
                     format_count(lengths.front()), format_count(lengths.back()),
                     format_count(lengths[lengths.size() / 2]));
}

}  // namespace

Result<DataSet> open_data_set(const std::string& prefix, const Tokenizer* tokenizer,
                              std::int64_t model_vocab) {
  auto tokens = TokenFile::open(prefix);
  if (!tokens) return tokens.error();
  auto info = read_data_info(prefix);
  if (!info) return info.error();
  DataSet data{std::move(tokens).value(), std::move(info).value()};
  if (data.info && data.info->tokens != data.tokens.size()) {
    return mismatch(fmt::format("{}: .json tells of {} tokens, .bin holds {}", prefix,
                                data.info->tokens, data.tokens.size()));
  }
  if (data.info && tokenizer && data.info->tokenizer_fingerprint != tokenizer->fingerprint()) {
    return mismatch(fmt::format(
        "{}: made with another tokenizer (fingerprint {}, {} tokens) than the one given ({}, {} "
        "tokens)",
        prefix, data.info->tokenizer_fingerprint, data.info->vocab_size, tokenizer->fingerprint(),
        tokenizer->vocab_size()));
  }
  if (data.info && model_vocab > 0 && data.info->max_token >= model_vocab) {
    return mismatch(fmt::format(
        "{}: holds token {}, but the model's vocabulary is {}: the data's tokenizer has {} tokens",
        prefix, data.info->max_token, model_vocab, data.info->vocab_size));
  }
  return data;
}

std::string describe_data(const DataSet& data, const Tokenizer* tokenizer, std::int64_t shown) {
  const TokenIndex& index = data.tokens.index();
  std::string out = fmt::format("{}\n", data.tokens.prefix());
  out += fmt::format("  tokens       {} ({} of {})\n", format_count(index.tokens()),
                     format_bytes(index.tokens() * token_bytes(index.type())),
                     token_type_name(index.type()));
  out += fmt::format("  documents    {}\n", format_count(index.documents()));
  out += describe_lengths(index);
  if (data.info) {
    out += fmt::format("  text         {}, {:.3g} bytes a token\n",
                       format_bytes(data.info->text_bytes),
                       static_cast<double>(data.info->text_bytes) /
                           static_cast<double>(std::max<std::int64_t>(data.info->tokens, 1)));
    out += fmt::format("  tokenizer    {} tokens, end of text {}, fingerprint {}\n",
                       format_count(data.info->vocab_size), data.info->end_of_text,
                       data.info->tokenizer_fingerprint);
    out += fmt::format("  largest id   {}\n", data.info->max_token);
  } else {
    out += "  tokenizer    not recorded (no .json beside the data)\n";
  }
  std::vector<std::int64_t> first(
      static_cast<std::size_t>(std::clamp<std::int64_t>(shown, 0, index.tokens())));
  data.tokens.read(0, static_cast<std::int64_t>(first.size()), first.data());
  if (!first.empty())
    out += fmt::format("first {} tokens: {}\n", first.size(), fmt::join(first, " "));
  if (tokenizer && !first.empty()) {
    out += to_valid_utf8(tokenizer->decode(std::span<const std::int64_t>(first))) + "\n";
  }
  return out;
}

}  // namespace fourfold
