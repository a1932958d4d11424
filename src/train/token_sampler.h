#pragma once

#include <cstdint>
#include <span>

namespace fourfold {

/// How a token is drawn from logits.
struct SamplingOptions {
  double temperature = 1.0;  ///< 0: the most likely token, the lowest id at ties.
  int top_k = 0;             ///< Only the k most likely; 0: all.
  double top_p = 1.0;        ///< Only the most likely that together reach p; 1: all.
  std::uint64_t seed = 0;
};

/// Draws the token at `position` of sequence `sequence`: a function of the logits, the options and
/// these two numbers alone.
std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          std::int64_t sequence, std::int64_t position);

}  // namespace fourfold
