#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/units.h"
#include "data/commands.h"
#include "data/parallel_encoder.h"
#include "data/text_reader.h"
#include "data/tokenizer.h"
#include "formats/data_info.h"
#include "formats/file_io.h"
#include "formats/token_file.h"

namespace fourfold {
namespace {

/// With fewer documents than this the text itself is cut.
constexpr std::int64_t kDocumentsToSplit = 100;

/// One data set that is being written.
class DataSetWriter {
 public:
  DataSetWriter(std::string prefix, const Tokenizer& tokenizer, std::int32_t end_of_text,
                int threads)
      : prefix_(std::move(prefix)),
        file_(prefix_, token_type_for_vocab(tokenizer.vocab_size())),
        encoder_(tokenizer, threads,
                 [this](std::span<const std::int32_t> tokens, bool ends) { put(tokens, ends); }) {
    info_.tokenizer_fingerprint = tokenizer.fingerprint();
    info_.vocab_size = tokenizer.vocab_size();
    info_.end_of_text = end_of_text;
  }

  void add(TextPiece piece) {
    if (piece.text.empty() && !(piece.ends_document && open_)) return;
    open_ = !piece.ends_document;
    info_.text_bytes += static_cast<std::int64_t>(piece.text.size());
    encoder_.add(piece);
  }

  void end_open_document() { add({.text = "", .ends_document = true}); }

  /// Ends the text; the part must hold some.
  void close() {
    end_open_document();
    encoder_.flush();
    if (file_.tokens() == 0) {
      throw Error(ErrorKind::kData, prefix_ + ": no text falls into this part",
                  "give more text, or another valid_fraction; text is cut at line ends");
    }
  }

  /// After close(): puts the files in place.
  void finish(const Log& log) {
    info_.tokens = file_.tokens();
    info_.documents = file_.documents();
    std::remove((prefix_ + ".json").c_str());  // An older one must not speak of the new data.
    file_.finish();
    write_data_info(prefix_, info_);
    log.info("{}: {} tokens in {} documents, {} of text ({:.3g} bytes a token)", prefix_,
             format_count(info_.tokens), format_count(info_.documents),
             format_bytes(info_.text_bytes),
             static_cast<double>(info_.text_bytes) / static_cast<double>(info_.tokens));
  }

 private:
  void put(std::span<const std::int32_t> tokens, bool ends) {
    file_.append(tokens);
    for (const std::int32_t token : tokens) {
      info_.max_token = std::max<std::int64_t>(info_.max_token, token);
    }
    if (!ends) return;
    const auto end = static_cast<std::int32_t>(info_.end_of_text);
    file_.append({&end, 1});
    file_.end_document();
    info_.max_token = std::max<std::int64_t>(info_.max_token, end);
  }

  std::string prefix_;
  DataInfo info_;
  TokenFileWriter file_;
  ParallelEncoder encoder_;
  bool open_ = false;  ///< A document has begun and not ended.
};

/// Documents whose number, times the fraction, passes a whole number: evenly spread.
bool is_held_out(std::int64_t document, double fraction) {
  const auto d = static_cast<double>(document);
  return std::floor((d + 1) * fraction) > std::floor(d * fraction);
}

void split_documents(TextReader& reader, double fraction, DataSetWriter& train,
                     DataSetWriter& valid) {
  std::int64_t document = 0;
  for (TextPiece piece; reader.next(piece);) {
    const bool ends = piece.ends_document;
    (is_held_out(document, fraction) ? valid : train).add(std::move(piece));
    document += ends ? 1 : 0;
  }
}

/// The first `train_bytes` of the text, and on to the end of the line or of the document, train.
void split_text(TextReader& reader, std::int64_t train_bytes, DataSetWriter& train,
                DataSetWriter& valid) {
  bool reached = false;
  for (TextPiece piece; reader.next(piece);) {
    if (reached) {
      valid.add(std::move(piece));
      continue;
    }
    const auto size = static_cast<std::int64_t>(piece.text.size());
    const std::size_t from = static_cast<std::size_t>(std::max<std::int64_t>(train_bytes - 1, 0));
    const std::size_t line_end =
        train_bytes <= size ? piece.text.find('\n', from) : std::string::npos;
    train_bytes -= size;
    if (line_end != std::string::npos) {
      train.add({piece.text.substr(0, line_end + 1), /*ends_document=*/true});
      valid.add({piece.text.substr(line_end + 1), piece.ends_document});
      reached = true;
      continue;
    }
    reached = train_bytes <= 0 && piece.ends_document;
    train.add(std::move(piece));
  }
}

void check_options(const PrepareDataOptions& options) {
  if (!(options.valid_fraction >= 0 && options.valid_fraction < 1)) {
    throw Error(ErrorKind::kUsage,
                fmt::format("valid_fraction is {}, not in [0, 1)", options.valid_fraction),
                "0.05 holds out one part in twenty");
  }
  if (options.output.empty()) {
    throw Error(ErrorKind::kUsage, "no output prefix", "name one, such as data/text");
  }
  if (options.output + ".json" == options.tokenizer) {
    throw Error(
        ErrorKind::kUsage,
        "PREFIX.json of the output would take the place of the tokenizer " + options.tokenizer,
        "name another output prefix");
  }
}

}  // namespace

void prepare_data(const PrepareDataOptions& options, const Log& log) {
  check_options(options);
  const Tokenizer tokenizer = Tokenizer::open(options.tokenizer).value();
  const auto end_of_text = tokenizer.end_of_text();
  if (!end_of_text) {
    throw Error(ErrorKind::kData,
                options.tokenizer + ": has no end-of-text token to put between documents",
                "add one named <|endoftext|>, or train a tokenizer with 'fourfold data tokenizer'");
  }
  const int threads = options.threads > 0
                          ? options.threads
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const double fraction = options.valid_fraction;
  const bool split = fraction > 0;
  TextReader reader(options.inputs, options.json_field);
  make_parent_folders(options.output);
  DataSetWriter train(options.output + (split ? "-train" : ""), tokenizer, *end_of_text, threads);
  if (!split) {
    for (TextPiece piece; reader.next(piece);) train.add(std::move(piece));
    train.close();
    train.finish(log);
    return;
  }
  DataSetWriter valid(options.output + "-valid", tokenizer, *end_of_text, threads);
  const TextTotals totals = count_text(options.inputs, options.json_field, kDocumentsToSplit);
  if (totals.documents >= kDocumentsToSplit) {
    split_documents(reader, fraction, train, valid);
  } else {
    const double train_bytes = std::ceil(static_cast<double>(totals.bytes) * (1 - fraction));
    split_text(reader, static_cast<std::int64_t>(train_bytes), train, valid);
  }
  train.close();
  valid.close();
  train.finish(log);
  valid.finish(log);
}

}  // namespace fourfold
