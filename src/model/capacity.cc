#include "model/capacity.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace fourfold {

std::int64_t expert_capacity(const MoeSpec& spec, std::int64_t tokens) {
  const double share = static_cast<double>(tokens) * spec.top_k / spec.experts;
  constexpr double kRounding = 1e-9;  // Of factors such as 1.1, which no double is.
  return static_cast<std::int64_t>(std::ceil(spec.capacity_factor * share * (1 - kRounding)));
}

void drop_last(std::span<std::int32_t> experts, std::span<std::int64_t> before, std::int64_t most) {
  for (std::int32_t& e : experts) {
    std::int64_t& count = before[static_cast<std::size_t>(e)];
    if (count < most) {
      ++count;
    } else {
      e = -1;
    }
  }
}

void drop_lowest(std::span<std::int32_t> experts, const float* weights, std::int64_t expert_count,
                 std::int64_t most) {
  std::vector<std::vector<std::size_t>> of_expert(static_cast<std::size_t>(expert_count));
  for (std::size_t i = 0; i < experts.size(); ++i) {
    of_expert[static_cast<std::size_t>(experts[i])].push_back(i);
  }
  for (std::vector<std::size_t>& assignments : of_expert) {
    std::stable_sort(assignments.begin(), assignments.end(),
                     [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
    for (std::size_t i = static_cast<std::size_t>(most); i < assignments.size(); ++i) {
      experts[assignments[i]] = -1;
    }
  }
}

}  // namespace fourfold
