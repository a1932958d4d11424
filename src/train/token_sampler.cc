#include "train/token_sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/philox.h"

namespace fourfold {
namespace {

double uniform_at(std::uint64_t seed, std::int64_t sequence, std::int64_t position) {
  const PhiloxCounter words =
      philox4x32({static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
                  static_cast<std::uint32_t>(sequence), static_cast<std::uint32_t>(sequence >> 32)},
                 philox_key(seed, RandomPurpose::kSampling));
  const std::uint64_t bits = (std::uint64_t{words[0]} << 21) ^ (words[1] >> 11);  // 53 bits.
  return static_cast<double>(bits) * 0x1p-53;
}

/// How many of the tokens, most likely first, may be drawn.
std::size_t kept_tokens(const std::vector<double>& probabilities, const SamplingOptions& options) {
  std::size_t kept = probabilities.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<std::size_t>(options.top_k));
  if (options.top_p >= 1) return kept;
  double sum = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    sum += probabilities[i];
    if (sum >= options.top_p) return i + 1;
  }
  return kept;
}

}  // namespace

std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          std::int64_t sequence, std::int64_t position) {
  const auto best = std::max_element(logits.begin(), logits.end());
  if (options.temperature <= 0) return best - logits.begin();
  std::vector<std::int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return logits[a] > logits[b]; });
  std::vector<double> probabilities;
  double total = 0;
  for (const std::int64_t token : order) {
    probabilities.push_back(std::exp((logits[token] - *best) / options.temperature));
    total += probabilities.back();
  }
  for (double& p : probabilities) p /= total;
  const std::size_t kept = kept_tokens(probabilities, options);
  const double mass = std::accumulate(probabilities.begin(), probabilities.begin() + kept, 0.0);
  double rest = uniform_at(options.seed, sequence, position) * mass;
  for (std::size_t i = 0; i + 1 < kept; ++i) {
    rest -= probabilities[i];
    if (rest < 0) return order[i];
  }
  return order[kept - 1];
}

}  // namespace fourfold
