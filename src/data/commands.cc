#include "data/commands.h"

#include <fmt/core.h>

#include <thread>
#include <vector>

#include "base/error.h"
#include "base/units.h"
#include "data/bpe_trainer.h"
#include "data/data_set.h"
#include "data/parallel_encoder.h"
#include "data/text_cut.h"
#include "data/text_reader.h"
#include "formats/file_io.h"

namespace fourfold {

void train_tokenizer(const TrainTokenizerOptions& options, const Log& log) {
  constexpr std::int64_t kMaxVocab = 1 << 24;
  if (options.vocab_size < BpeTrainer::kMinVocab || options.vocab_size > kMaxVocab) {
    throw Error(ErrorKind::kUsage,
                fmt::format("a vocabulary of {} tokens cannot be trained", options.vocab_size),
                fmt::format("choose {} to {}: 256 bytes, the end of text, and merged tokens",
                            BpeTrainer::kMinVocab, kMaxVocab));
  }
  make_parent_folders(options.output);
  AtomicFile output(options.output);  // Before the work, so that a wrong path fails at once.
  const int threads = options.threads > 0
                          ? options.threads
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<BpeTrainer> trainers;
  for (int t = 0; t < threads; ++t) trainers.emplace_back(options.pattern);
  TextBatcher batcher(find_text_cut, [&](TextBatcher::Batch& batch) {
    parallel_for(batch.size(), threads, [&](std::size_t i, int t) {
      trainers[static_cast<std::size_t>(t)].add(batch[i].text);
    });
  });
  TextReader reader(options.inputs, options.json_field);
  std::int64_t bytes = 0;
  for (TextPiece piece; reader.next(piece);) {
    bytes += static_cast<std::int64_t>(piece.text.size());
    batcher.add(piece);
  }
  batcher.flush();
  if (bytes == 0) {
    throw Error(ErrorKind::kData, "the input files hold no text",
                fmt::format("name files with text; lines of .jsonl need a \"{}\" member",
                            options.json_field));
  }
  for (std::size_t t = 1; t < trainers.size(); ++t) trainers[0].add(trainers[t]);
  const TokenizerModel model = trainers[0].train(options.vocab_size);
  output.write(format_tokenizer_json(model));
  output.commit();
  if (model.vocab_size() < options.vocab_size) {
    log.warning("the text gives {} tokens only, {} were asked for",
                format_count(model.vocab_size()), format_count(options.vocab_size));
  }
  log.info("{}: {} tokens, trained on {} of text", options.output, format_count(model.vocab_size()),
           format_bytes(bytes));
}

std::string show_data(const ShowDataOptions& options) {
  std::optional<Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) tokenizer = Tokenizer::open(options.tokenizer).value();
  const Tokenizer* used = tokenizer ? &*tokenizer : nullptr;
  std::string prefix = options.prefix;
  if (prefix.ends_with(".bin") || prefix.ends_with(".idx")) prefix.resize(prefix.size() - 4);
  return describe_data(open_data_set(prefix, used, 0).value(), used, options.tokens);
}

}  // namespace fourfold
