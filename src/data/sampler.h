#pragma once

#include <cstdint>
#include <span>

#include "base/philox.h"
#include "formats/token_file.h"

namespace fourfold {

/// The windows of a token file in order: window w holds tokens [w·seq_len, (w+1)·seq_len] of the
/// flat stream of documents, so its last target is the next window's first input. Tokens after the
/// last whole window are left out. Thread-safe.
class WindowReader {
 public:
  /// `vocab_size` is the model's. The file must outlive the reader. Throws Error where the file
  /// holds fewer than seq_len + 1 tokens.
  WindowReader(const TokenFile& tokens, std::int64_t seq_len, std::int64_t vocab_size);

  std::int64_t windows() const { return windows_; }
  std::int64_t seq_len() const { return seq_len_; }

  /// Writes seq_len inputs and the seq_len tokens that follow each. Throws Error where a token is
  /// not below the model's vocabulary: the data is of another tokenizer.
  void fill(std::int64_t window, std::int64_t* inputs, std::int64_t* targets) const;

 private:
  const TokenFile* tokens_;
  std::int64_t seq_len_;
  std::int64_t vocab_size_;
  std::int64_t windows_;
};

/// A bijection of 0 ... size-1 that looks random, chosen by key and epoch: any value in O(1) time
/// and memory. A Feistel network over Philox on the next power of four, walked along its cycle
/// until it falls inside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
class KeyedPermutation {
 public:
  KeyedPermutation(std::int64_t size, PhiloxKey key);
  std::int64_t at(std::int64_t index, std::int64_t epoch) const;

 private:
  std::uint64_t encrypt(std::uint64_t value, std::uint64_t epoch) const;

  std::uint64_t size_;
  PhiloxKey key_;
  int half_bits_ = 1;
};

/// The training order as a function of the sample's number, which grows for ever and is the only
/// state: sample i is in epoch i / windows, and each epoch has an order of its own, given by the
/// seed. Nothing depends on ranks, batch sizes or what was read before. Thread-safe.
class Sampler {
 public:
  /// As WindowReader.
  Sampler(const TokenFile& tokens, std::int64_t seq_len, std::int64_t vocab_size,
          std::uint64_t seed);

  std::int64_t samples_per_epoch() const { return windows_.windows(); }
  std::int64_t epoch(std::int64_t sample) const { return sample / windows_.windows(); }
  std::int64_t window(std::int64_t sample) const;

  /// As WindowReader::fill, of the sample's window.
  void fill(std::int64_t sample, std::int64_t* inputs, std::int64_t* targets) const;

 private:
  WindowReader windows_;
  KeyedPermutation order_;
};

}  // namespace fourfold
