#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/text_reader.h"
#include "data/tokenizer.h"

namespace fourfold {

/// Calls f(item, thread) for items 0 ... count-1 from several threads. The first exception is
/// thrown again when all have ended.
void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t, int)>& f);

/// Gathers a stream of text into pieces that can be tokenised apart and hands them on in batches.
/// A document without a place to cut in it for kMaxPieceBytes is cut between two characters.
class TextBatcher {
 public:
  using FindCut = std::function<std::size_t(std::string_view, std::size_t)>;
  using Batch = std::vector<TextPiece>;

  static constexpr std::size_t kPieceBytes = 1 << 18;
  static constexpr std::size_t kMaxPieceBytes = 1 << 26;
  static constexpr std::size_t kBatchBytes = 1 << 23;

  TextBatcher(FindCut find_cut, std::function<void(Batch&)> sink)
      : find_cut_(std::move(find_cut)), sink_(std::move(sink)) {}

  void add(const TextPiece& piece);
  /// Hands on what is left.
  void flush();

 private:
  void push(TextPiece piece);

  FindCut find_cut_;
  std::function<void(Batch&)> sink_;
  std::string carry_;
  std::size_t searched_ = 0;  ///< Bytes of carry_ known to hold no cut.
  Batch batch_;
  std::size_t batch_bytes_ = 0;
};

/// Encodes a stream of documents on several threads; tokens come out in order.
class ParallelEncoder {
 public:
  /// Tokens of a part of a document, and whether the document ends there.
  using Sink = std::function<void(std::span<const std::int32_t>, bool)>;

  /// The tokenizer must outlive the encoder.
  ParallelEncoder(const Tokenizer& tokenizer, int threads, Sink sink);
  void add(const TextPiece& piece) { batcher_.add(piece); }
  void flush() { batcher_.flush(); }

 private:
  void encode(TextBatcher::Batch& batch);

  std::vector<TokenEncoder> encoders_;  ///< One per thread.
  Sink sink_;
  TextBatcher batcher_;
};

}  // namespace fourfold
