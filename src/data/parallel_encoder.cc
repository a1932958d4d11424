#include "data/parallel_encoder.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace fourfold {
namespace {

/// Searched again with what follows: a cut is decided by what stands around it.
constexpr std::size_t kOverlapBytes = 256;

/// The last place at or before `size` between two characters.
std::size_t character_cut(std::string_view text, std::size_t size) {
  constexpr std::size_t kMaxCharacter = 4;
  for (std::size_t cut = size; cut + kMaxCharacter > size; --cut) {
    if ((static_cast<unsigned char>(text[cut]) & 0xC0) != 0x80) return cut;
  }
  return size;
}

}  // namespace

void parallel_for(std::size_t count, int threads, const std::function<void(std::size_t, int)>& f) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&](int thread) {
    try {
      for (std::size_t i = next++; i < count; i = next++) f(i, thread);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> others;
    const int used =
        static_cast<int>(std::min<std::size_t>(static_cast<std::size_t>(threads), count));
    for (int thread = 1; thread < used; ++thread) others.emplace_back(work, thread);
    work(0);
  }
  if (failure) std::rethrow_exception(failure);
}

void TextBatcher::add(const TextPiece& piece) {
  carry_ += piece.text;
  while (carry_.size() > kPieceBytes + 1) {
    std::size_t cut = find_cut_(carry_, kPieceBytes);
    if (cut == 0) {  // Then the last one of what has not been searched yet.
      const std::string_view rest = std::string_view(carry_).substr(searched_);
      cut = find_cut_(rest, rest.size() - 1);
      if (cut > 0) cut += searched_;
      searched_ = carry_.size() - std::min(carry_.size(), kOverlapBytes);
    }
    if (cut == 0 && carry_.size() > kMaxPieceBytes) cut = character_cut(carry_, kMaxPieceBytes);
    if (cut == 0) break;
    push({carry_.substr(0, cut), /*ends_document=*/false});
    carry_.erase(0, cut);
    searched_ = 0;
  }
  if (piece.ends_document) {
    push({std::exchange(carry_, {}), /*ends_document=*/true});
    searched_ = 0;
  }
}

void TextBatcher::push(TextPiece piece) {
  batch_bytes_ += piece.text.size();
  batch_.push_back(std::move(piece));
  if (batch_bytes_ >= kBatchBytes) flush();
}

void TextBatcher::flush() {
  if (!batch_.empty()) sink_(batch_);
  batch_.clear();
  batch_bytes_ = 0;
}

ParallelEncoder::ParallelEncoder(const Tokenizer& tokenizer, int threads, Sink sink)
    : sink_(std::move(sink)),
      batcher_([&tokenizer](std::string_view text,
                            std::size_t limit) { return tokenizer.find_cut(text, limit); },
               [this](TextBatcher::Batch& batch) { encode(batch); }) {
  for (int thread = 0; thread < threads; ++thread) encoders_.emplace_back(tokenizer);
}

void ParallelEncoder::encode(TextBatcher::Batch& batch) {
  std::vector<std::vector<std::int32_t>> tokens(batch.size());
  parallel_for(batch.size(), static_cast<int>(encoders_.size()), [&](std::size_t i, int thread) {
    encoders_[static_cast<std::size_t>(thread)].encode(batch[i].text, tokens[i]);
  });
  for (std::size_t i = 0; i < batch.size(); ++i) sink_(tokens[i], batch[i].ends_document);
}

}  // namespace fourfold
