#include "data/sampler.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace fourfold {
namespace {

constexpr int kFeistelRounds = 6;

}  // namespace

WindowReader::WindowReader(const TokenFile& tokens, std::int64_t seq_len, std::int64_t vocab_size)
    : tokens_(&tokens), seq_len_(seq_len), vocab_size_(vocab_size) {
  FF_CHECK(seq_len >= 1 && vocab_size >= 1, "seq_len {}, vocab_size {}", seq_len, vocab_size);
  windows_ = (tokens.size() - 1) / seq_len;
  if (windows_ < 1) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: {} tokens; a sequence of {} needs {}", tokens.prefix(),
                            tokens.size(), seq_len, seq_len + 1),
                fmt::format("use more text, or a seq_len of at most {}",
                            std::max<std::int64_t>(tokens.size() - 1, 1)));
  }
}

void WindowReader::fill(std::int64_t window, std::int64_t* inputs, std::int64_t* targets) const {
  FF_CHECK(window >= 0 && window < windows_, "window {} of {}", window, windows_);
  tokens_->read(window * seq_len_, seq_len_, inputs);
  std::copy(inputs + 1, inputs + seq_len_, targets);
  tokens_->read((window + 1) * seq_len_, 1, targets + seq_len_ - 1);
  const auto [least, most] = std::minmax_element(inputs, inputs + seq_len_);
  const std::int64_t last = targets[seq_len_ - 1];
  const std::int64_t bad =
      std::min(*least, last) < 0 ? std::min(*least, last) : std::max(*most, last);
  if (bad < 0 || bad >= vocab_size_) {
    throw Error(ErrorKind::kData,
                fmt::format("{}: holds token {}, but the model's vocabulary is {}",
                            tokens_->prefix(), bad, vocab_size_),
                "the data is of another tokenizer: prepare it with the model's, or set model.vocab "
                "to the tokenizer's size");
  }
}

KeyedPermutation::KeyedPermutation(std::int64_t size, PhiloxKey key)
    : size_(static_cast<std::uint64_t>(size)), key_(key) {
  FF_CHECK(size >= 1, "size {}", size);
  while (half_bits_ < 32 && (std::uint64_t{1} << (2 * half_bits_)) < size_) ++half_bits_;
}

std::uint64_t KeyedPermutation::encrypt(std::uint64_t value, std::uint64_t epoch) const {
  const std::uint32_t mask = static_cast<std::uint32_t>((std::uint64_t{1} << half_bits_) - 1);
  auto left = static_cast<std::uint32_t>(value >> half_bits_);
  auto right = static_cast<std::uint32_t>(value) & mask;
  for (std::uint32_t round = 0; round < kFeistelRounds; ++round) {
    const auto mixed = philox4x32(
        {right, round, static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32)},
        key_);
    const std::uint32_t next = left ^ (mixed[0] & mask);
    left = right;
    right = next;
  }
  return static_cast<std::uint64_t>(left) << half_bits_ | right;
}

std::int64_t KeyedPermutation::at(std::int64_t index, std::int64_t epoch) const {
  auto value = static_cast<std::uint64_t>(index);
  FF_CHECK(index >= 0 && value < size_ && epoch >= 0, "index {} of {}", index, size_);
  do {
    value = encrypt(value, static_cast<std::uint64_t>(epoch));
  } while (value >= size_);
  return static_cast<std::int64_t>(value);
}

Sampler::Sampler(const TokenFile& tokens, std::int64_t seq_len, std::int64_t vocab_size,
                 std::uint64_t seed)
    : windows_(tokens, seq_len, vocab_size),
      order_(windows_.windows(), philox_key(seed, RandomPurpose::kDataOrder)) {}

std::int64_t Sampler::window(std::int64_t sample) const {
  FF_CHECK(sample >= 0, "sample {}", sample);
  return order_.at(sample % windows_.windows(), epoch(sample));
}

void Sampler::fill(std::int64_t sample, std::int64_t* inputs, std::int64_t* targets) const {
  windows_.fill(window(sample), inputs, targets);
}

}  // namespace fourfold
