#pragma once

#include <array>
#include <cstdint>

namespace fourfold {

/// Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011): four
/// random words as a pure function of a counter of four words and a key of two. Every random
/// number in fourfold is such a function of global coordinates, so that no grid changes it.
using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

constexpr PhiloxCounter philox4x32(PhiloxCounter c, PhiloxKey k) {
  constexpr std::uint32_t kMul0 = 0xD2511F53u, kMul1 = 0xCD9E8D57u;  // Table 2 of the paper.
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = static_cast<std::uint64_t>(kMul0) * c[0];
    const std::uint64_t p1 = static_cast<std::uint64_t>(kMul1) * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(p0)};
    k[0] += kWeyl0;
    k[1] += kWeyl1;
  }
  return c;
}

/// What a stream of random numbers is for; part of the key, so that no two purposes share one.
enum class RandomPurpose : std::uint32_t {
  kInit = 1,
  kHiddenDropout = 2,
  kAttentionDropout = 3,
  kDataOrder = 4,
  kSampling = 5,
  kRouter = 6,
};

/// The key of a purpose within a run.
constexpr PhiloxKey philox_key(std::uint64_t seed, RandomPurpose purpose) {
  const auto mixed =
      philox4x32({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                  static_cast<std::uint32_t>(purpose), 0},
                 {0x66666F6Cu, 0x34640000u});
  return {mixed[0], mixed[1]};
}

}  // namespace fourfold
