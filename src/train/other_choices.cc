#include "train/other_choices.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace fourfold {
namespace {

constexpr std::size_t kWords = 4;  // Of a choice on its way: block, sample, position, margin.

std::vector<std::int64_t> differences(const RoutingTable& own, const RoutingTable& wanted,
                                      int top_k) {
  std::vector<std::int64_t> words;
  for (const auto& [place, sequence] : own.sequences) {
    const RoutingTable::Sequence& other = wanted.sequences.at(place);
    for (std::size_t position = 0; position < sequence.margin.size(); ++position) {
      auto choice = [&](const RoutingTable::Sequence& s) {
        const auto begin = s.chosen.begin() + static_cast<std::ptrdiff_t>(position) * top_k;
        std::vector<std::int32_t> experts(begin, begin + top_k);
        std::sort(experts.begin(), experts.end());
        return experts;
      };
      if (choice(sequence) == choice(other)) continue;
      const double margin = other.margin[position];
      words.insert(words.end(), {place.first, place.second, static_cast<std::int64_t>(position),
                                 std::bit_cast<std::int64_t>(margin)});
    }
  }
  return words;
}

}  // namespace

std::vector<OtherChoice> find_other_choices(const RoutingTable& own, const RoutingTable& wanted,
                                            int top_k, int step, Communicator& world) {
  const std::vector<std::int64_t> mine = differences(own, wanted, top_k);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(world.size()));
  const std::vector<std::int64_t> one(counts.size(), 1);
  const auto count = static_cast<std::int64_t>(mine.size());
  world.all_gather({&count, 1, DType::kI64}, {counts.data(), world.size(), DType::kI64}, one)
      .wait_host();
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  std::vector<std::int64_t> words(static_cast<std::size_t>(total));
  world.all_gather({mine.data(), count, DType::kI64}, {words.data(), total, DType::kI64}, counts)
      .wait_host();
  std::vector<OtherChoice> all;
  for (std::size_t i = 0; i < words.size(); i += kWords) {
    all.push_back({step, static_cast<int>(words[i]), words[i + 1], words[i + 2],
                   std::bit_cast<double>(words[i + 3])});
  }
  return all;
}

}  // namespace fourfold
